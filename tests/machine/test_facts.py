"""Facts are plain JSON everywhere, and the key changes only with the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.machine import facts
from tests.machine.trees import plant, xeon


def test_this_machine_reads_as_json() -> None:
    found = facts.collect()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["cpu"]["cpus"] >= 1
    assert found["python"]["version"] == sys.version.split()[0]
    assert found["packages"]["steelyard"] and found["packages"]["numpy"]
    assert facts.summary(found)


def test_no_framework_is_imported() -> None:
    code = "import sys; from steelyard.machine import facts; facts.collect(); print({'numpy', 'torch', 'jax', 'psutil'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_an_empty_machine_has_the_same_shape_and_a_key(tmp_path: Path) -> None:
    empty, real = facts.collect(tmp_path, root=tmp_path), facts.collect()
    assert empty.keys() == real.keys()
    assert all(empty[name].keys() == real[name].keys() for name in ("cpu", "memory", "cgroup", "os"))
    assert len(facts.key(empty)) == 12
    assert facts.key({}) and facts.summary({})


def test_key_outlives_load_clock_and_memory_in_use(tmp_path: Path) -> None:
    before = facts.collect(root=xeon(tmp_path))
    after = facts.collect(root=xeon(tmp_path, mhz="3799.123", available=17, load="9.00 9.00 9.00 9/9 9"))
    assert before["load"] != after["load"] and before["memory"]["available"] != after["memory"]["available"]
    assert facts.key(before) == facts.key(after)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [("proc/cpuinfo", "8480C", "8490H"), ("proc/meminfo", "16384000", "32768000"), ("proc/sys/kernel/osrelease", "6.8", "6.9")],
)
def test_key_follows_the_machine(tmp_path: Path, path: str, old: str, new: str) -> None:
    before = facts.key(facts.collect(root=xeon(tmp_path)))
    file = tmp_path / path
    file.write_text(file.read_text().replace(old, new))
    assert facts.key(facts.collect(root=tmp_path)) != before


def test_key_ignores_a_patch_release_and_follows_the_gpu(tmp_path: Path) -> None:
    found = facts.collect(root=xeon(tmp_path))
    patched = {**found, "os": {**found["os"], "kernel": "6.8.1-99-generic"}}
    gpu = {"name": "NVIDIA H200", "driver": "580.1", "clock_hz": 345_000_000}
    keys = [
        facts.key({**found, "gpus": [{**gpu, **change}]}) for change in ({}, {"clock_hz": 1}, {"driver": "590.1"}, {"name": "NVIDIA H100"})
    ]
    assert facts.key(patched) == facts.key(found)
    assert keys[0] == keys[1] and len({facts.key(found), *keys}) == 4


def test_summary_reads_as_a_table_head(tmp_path: Path) -> None:
    found = {**facts.collect(root=xeon(tmp_path)), "gpus": []}
    assert facts.summary(found) == "Intel Xeon Platinum 8480C · 1 core · Linux 6.8"
    guest = {**found, "cpu": {**found["cpu"], "virtual": "kvm", "cores": None}, "gpus": [{"name": "NVIDIA H200"}] * 2}
    assert facts.summary(guest) == "2 × H200 · Intel Xeon Platinum 8480C · 2 CPUs · Linux 6.8 · KVM guest"


@pytest.mark.parametrize(
    ("files", "quota", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000", "sys/fs/cgroup/memory.max": "1048576"}, 1.5, 2**20),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/memory.max": "max"}, None, None),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/b/cpu.max": "200000 100000"},
            0.5,
            None,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "2097152",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            2.5,
            2**21,
        ),
        (
            {"proc/self/cgroup": "2:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            None,
            None,
        ),
        ({"proc/self/cgroup": "0::/../../../etc\n", "etc/cpu.max": "1 100"}, None, None),
        ({"proc/self/cgroup": "nonsense\n"}, None, None),
        ({}, None, None),
    ],
)
def test_limits_of_both_kinds_of_group(tmp_path: Path, files: dict[str, str], quota: float | None, limit: int | None) -> None:
    found = facts.cgroup(plant(tmp_path, files))
    assert (found["cpu_quota"], found["memory_limit"]) == (quota, limit)


def test_throttled_periods_are_counted(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "1 2",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1\nnr_periods 9\nnr_throttled 4\n",
        },
    )
    assert facts.cgroup(tmp_path) == {"cpu_quota": 0.5, "memory_limit": None, "periods": 9, "throttled": 4}


def test_git_says_which_source(tmp_path: Path) -> None:
    def run(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org", *words], check=True, capture_output=True
        )

    assert facts.collect(tmp_path)["git"] is None
    run("init", "-b", "trunk")
    assert facts.git(tmp_path) == {"commit": None, "branch": "trunk", "dirty": False}
    plant(tmp_path, {"a.py": "1"})
    run("add", "a.py")
    run("commit", "-m", "one")
    clean = facts.git(tmp_path)
    assert clean and len(clean["commit"]) == 40 and not clean["dirty"]
    plant(tmp_path, {"a.py": "2"})
    assert facts.git(tmp_path) == {**clean, "dirty": True}


def test_git_starts_nothing_the_repository_names(tmp_path: Path) -> None:
    subprocess.run(["git", "init", str(tmp_path)], check=True, capture_output=True)
    subprocess.run(["git", "-C", str(tmp_path), "config", "core.fsmonitor", f"touch {tmp_path}/started; false"], check=True)
    assert facts.git(tmp_path)
    assert not (tmp_path / "started").exists()


def test_a_missing_tool_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = facts.collect()
    assert found["git"] is None
    assert set(found["compilers"].values()) == {None}
