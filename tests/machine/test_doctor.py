"""What the doctor says of healthy, sick and unreadable machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from steelyard.cli.doctor import command
from steelyard.machine import cpu, doctor, facts, locks
from steelyard.machine.doctor import gpu, processor
from tests.machine.trees import CPUS, plant, xeon

HEALTHY = {
    "proc/stat": "cpu  100 0 100 1000 0 0 0 0 0 0\n",
    "proc/sys/kernel/randomize_va_space": "2",
    "proc/sys/kernel/perf_event_paranoid": "1",
    "sys/bus/event_source/devices/cpu/type": "4",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet",
    f"{CPUS}/intel_pstate/no_turbo": "1",
    f"{CPUS}/smt/active": "0",
    "proc/sys/kernel/numa_balancing": "0",
    "sys/devices/system/node/node0/cpulist": "0",
    "sys/devices/system/node/node1/cpulist": "1",
}
FIRST = f"{CPUS}/cpu{cpu.affinity()[0]}"
GPU = {
    "index": 0,
    "name": "NVIDIA H200",
    "driver": "580.1",
    "persistence": True,
    "clock_hz": 345e6,
    "clock_max_hz": 1980e6,
    "clocks_set": False,
    "slowed": [],
}
SETTINGS = {
    "index": 0,
    "applied_hz": 1980e6,
    "applied_default_hz": 1980e6,
    "boost": False,
    "power_limit": 700.0,
    "power_default": 700.0,
    "busy": 0.0,
    "processes": 0,
}


def tuned(cpu: int) -> dict[str, str]:
    """A CPU that is set for measuring, with one idle state that nobody minds and one that is forbidden."""
    folder = f"{CPUS}/cpu{cpu}"
    return {
        f"{folder}/cpufreq/scaling_governor": "performance",
        f"{folder}/cpufreq/energy_performance_preference": "performance",
        **{f"{folder}/cpuidle/state0/{name}": text for name, text in {"name": "POLL", "latency": "0", "disable": "0"}.items()},
        **{f"{folder}/cpuidle/state1/{name}": text for name, text in {"name": "C6", "latency": "133", "disable": "1"}.items()},
    }


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("machine")
    return plant(xeon(root), {**HEALTHY, **{name: text for index in cpu.affinity() for name, text in tuned(index).items()}})


def examine(root: Path, settings: Sequence[Mapping[str, Any]] = (), **changes: Any) -> dict[str, doctor.Observation]:
    found = {**facts.collect(root=root), "gpus": [], "compilers": {"g++": "g++ 14"}, "packages": {"torch": "2.13.0"}}
    for name, change in changes.items():
        found[name] = {**found[name], **change} if isinstance(change, dict) else change
    return {finding.name: finding for finding in doctor.examine(found, root=root, store=root, gpus=settings)}


def test_a_healthy_machine_needs_nothing(healthy: Path) -> None:
    findings = examine(healthy)
    assert {name for name, finding in findings.items() if finding.status != "ok" or finding.do} <= {"timer", "disk"}


@pytest.mark.parametrize(
    ("changes", "name", "status", "saw", "do"),
    [
        ({"load": [1.0, 0, 0]}, "load", "warn", "1.00", "ps -eo"),
        ({"load": [9.0, 0, 0]}, "load", "bad", "9.00", "ps -eo"),
        ({"cpu": {"governor": "powersave"}}, "governor", "warn", "powersave", "echo performance | sudo tee"),
        ({"cpu": {"turbo": "on"}}, "turbo", "note", "on", "intel_pstate/no_turbo"),
        ({"cpu": {"smt": True}}, "smt", "note", "share a core", "smt/control"),
        ({"cgroup": {"cpu_quota": 1.5, "throttled": 4, "periods": 9}}, "cpu quota", "warn", "4 of 9", "--cpuset-cpus"),
        ({"cgroup": {"cpu_quota": 1.5, "throttled": 0, "periods": 9}}, "cpu quota", "note", "1.5 cores", "--cpuset-cpus"),
        ({"memory": {"swap_used": 2**30}}, "memory", "warn", "1.00 GiB swapped", "swapoff"),
        ({"memory": {"available": 2**20}}, "memory", "warn", "1.00 MiB available", "free"),
        ({"compilers": {"g++": None}}, "c++ compiler", "warn", "no g++", "apt-get install g++"),
        ({"packages": {"torch": None}}, "torch", "warn", "not installed", "steelyard[torch]"),
        ({"cpu": {"virtual": "kvm"}}, "virtual", "note", "kvm; the host took 0 %", "--vs"),
    ],
)
def test_sick_facts(healthy: Path, changes: dict[str, Any], name: str, status: str, saw: str, do: str) -> None:
    finding = examine(healthy, **changes)[name]
    assert finding.status == status and saw in finding.saw and do in finding.do and finding.matters


@pytest.mark.parametrize(
    ("path", "text", "name", "status", "do"),
    [
        ("proc/sys/kernel/randomize_va_space", "0", "aslr", "note", "randomize_va_space=2"),
        ("proc/sys/kernel/perf_event_paranoid", "4", "perf counters", "note", "perf_event_paranoid=2"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "huge pages", "note", "echo madvise"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet", "clock source", "bad", "echo tsc"),
        ("proc/sys/kernel/numa_balancing", "1", "numa balancing", "note", "numa_balancing=0"),
        (f"{FIRST}/cpufreq/energy_performance_preference", "balance_performance", "energy preference", "note", "echo performance"),
        (f"{FIRST}/cpufreq/energy_performance_preference", "balance_power", "energy preference", "warn", "energy_performance_preference"),
        (f"{FIRST}/cpuidle/state1/disable", "0", "idle states", "note", "cpuidle/state[1-9]/disable"),
        (f"{CPUS}/isolated", "998-999", "isolated cpus", "note", "taskset -c 998-999 "),
    ],
)
def test_sick_settings(healthy: Path, path: str, text: str, name: str, status: str, do: str) -> None:
    file = healthy / path
    before = file.read_text() if file.exists() else ""
    try:
        file.write_text(text)
        finding = examine(healthy)[name]
    finally:
        file.write_text(before)
    assert finding.status == status and do in finding.do


def test_steal_is_a_share_of_busy_time() -> None:
    assert processor.stolen("cpu  40 0 30 1000 500 0 0 30 0 0\ncpu0 1 2\n") == pytest.approx(0.3)
    assert processor.stolen("cpu  0 0 0 10 0 0 0 0 0 0") == 0
    assert processor.stolen("intr 1 2 3") is None


def test_gpus_are_judged_together(healthy: Path) -> None:
    findings = examine(healthy, gpus=[GPU, {**GPU, "index": 1, "persistence": False}])
    assert (findings["gpu"].status, findings["gpu persistence"].status, findings["gpu clocks"].status) == ("ok", "warn", "note")
    assert examine(healthy, gpus=[{**GPU, "slowed": ["heat"]}])["gpu clocks"].status == "bad"
    assert examine(healthy, gpus=[{**GPU, "clocks_set": True}])["gpu clocks"].status == "ok"
    assert "gpu" not in examine(healthy)


def test_the_clock_to_lock_is_one_that_every_gpu_can_hold(healthy: Path) -> None:
    finding = examine(healthy, gpus=[GPU, {**GPU, "index": 1, "clock_max_hz": 1410e6}])["gpu clocks"]
    assert "nvidia-smi -lgc 1125,1125 " in finding.do
    assert gpu.steady_mhz(1980e6) == 1575


@pytest.mark.parametrize(
    ("changes", "name", "status", "saw", "do"),
    [
        ({"applied_hz": 1200e6}, "gpu application clocks", "note", "1.20 GHz, delivered 1.98 GHz", "nvidia-smi -rac"),
        ({"boost": True}, "gpu auto boost", "note", "on for 1 of 1", "CUDA_AUTO_BOOST=0"),
        ({"power_limit": 350.0}, "gpu power limit", "note", "350 W, delivered 700 W", "nvidia-smi -i 0 -pl 700"),
        ({"processes": 2, "busy": 0.01}, "gpu load", "warn", "2 processes, 1.0 % busy", "--query-compute-apps"),
        ({"processes": None, "busy": 0.9}, "gpu load", "bad", "90 % busy", "--query-compute-apps"),
    ],
)
def test_gpus_that_are_set_or_used_by_others(healthy: Path, changes: dict[str, Any], name: str, status: str, saw: str, do: str) -> None:
    assert examine(healthy, [SETTINGS], gpus=[GPU])[name].status == "ok"
    finding = examine(healthy, [{**SETTINGS, **changes}], gpus=[GPU])[name]
    assert finding.status == status and saw in finding.saw and do in finding.do and finding.matters


def test_settings_that_no_gpu_tells_are_no_finding(healthy: Path) -> None:
    unanswered = {name: 0 if name == "index" else None for name in SETTINGS}
    named = {"gpu application clocks", "gpu auto boost", "gpu power limit", "gpu load"}
    assert not named & set(examine(healthy, [unanswered], gpus=[GPU]))


def test_isolated_cpus_are_fine_for_whoever_runs_on_them(healthy: Path) -> None:
    place = healthy / CPUS / "isolated"
    try:
        place.write_text("998-999\n")
        assert examine(healthy, cpu={"affinity": [998]})["isolated cpus"].status == "ok"
    finally:
        place.write_text("")


def test_a_gpu_that_cannot_be_asked_is_noticed(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/driver/nvidia/version": "NVRM"})
    assert "steelyard[nvidia]" in examine(tmp_path)["gpu"].do


def test_another_run_is_named(healthy: Path) -> None:
    with locks.hold(["cpu0"], "run k3f9, pid 123", pytest.fail):
        finding = examine(healthy)["other runs"]
    assert finding.status == "warn" and "cpu0 held by run k3f9, pid 123" in finding.saw


def test_nothing_readable_is_never_a_crash_nor_an_alarm(tmp_path: Path) -> None:
    findings = doctor.examine({}, root=tmp_path, store=tmp_path / "not/yet/there")
    assert len(findings) >= 15
    assert not [finding for finding in findings if finding.status == "bad" or "could not be checked" in finding.saw]


def test_a_broken_check_stops_no_other(healthy: Path) -> None:
    findings = examine(healthy, load="garbled")
    assert "could not be checked" in findings["load"].saw and findings["smt"].status == "ok"


def test_json_on_this_machine() -> None:
    result = CliRunner().invoke(command, ["--json"])
    said = json.loads(result.stdout)
    assert result.exit_code == 0
    assert said["key"] == facts.key(said["machine"])
    assert {"name", "status", "saw", "do", "matters"} == set(said["findings"][0])


def test_text_on_this_machine_fits_the_page() -> None:
    result = CliRunner().invoke(command, [])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and facts.key(facts.collect()) in lines[0]
    assert max(map(len, lines)) <= 100
    assert sum(line[:2] in ("✓ ", "· ", "! ", "✗ ") for line in lines) == len(doctor.examine(facts.collect()))


def test_every_command_the_doctor_gives_fits_on_one_line(tmp_path: Path) -> None:
    sick = xeon(tmp_path, load="9 9 9 9/9 9", more=" hypervisor")
    changes = {
        "cpu": {"governor": "powersave", "turbo": "on"},
        "compilers": {"g++": None},
        "packages": {"torch": None},
        "cgroup": {"cpu_quota": 1.0},
    }
    plant(sick, {f"{FIRST}/cpuidle/state1/latency": "133", f"{FIRST}/cpufreq/energy_performance_preference": "power"})
    worse = [{**SETTINGS, "applied_hz": 1.2e9, "boost": True, "power_limit": 350.0, "busy": 1.0}]
    found = examine(sick, worse, gpus=[{**GPU, "persistence": False}], **changes)
    assert {"idle states", "energy preference", "gpu auto boost"} < set(found)
    assert max(len(finding.do) for finding in found.values()) <= 94


@pytest.mark.parametrize(("args", "code"), [([], 0), (["--strict"], 3)])
def test_strict_fails_on_an_unfit_machine_only(monkeypatch: pytest.MonkeyPatch, args: list[str], code: int) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda scene: doctor.Observation("clock source", "bad", "hpet", "echo tsc", "1 %"),))
    assert CliRunner().invoke(command, args).exit_code == code
