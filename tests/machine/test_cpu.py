"""The processor of machines we do not have, read from fake trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.machine import cpu
from tests.machine.trees import CPUS, plant, xeon


def test_a_whole_machine(tmp_path: Path) -> None:
    found = cpu.collect(xeon(tmp_path))
    assert found["model"] == "Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz"
    assert found["flags"] == ["amx_bf16", "avx2", "sse2"]
    assert (found["cores"], found["cpus"], found["smt"]) == (1, 2, True)
    assert found["caches"] == {"L1d": 48 * 2**10, "L2": 2 * 2**20, "L3": None}
    assert found["virtual"] == "none"


def test_an_empty_tree_gives_nulls_and_never_raises(tmp_path: Path) -> None:
    found = cpu.collect(tmp_path)
    assert found["model"] is found["governor"] is found["turbo"] is found["smt"] is found["virtual"] is None
    assert found["caches"] == {"L1d": None, "L2": None, "L3": None}


def test_unreadable_and_garbled_files_give_nulls(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            f"{CPUS}/online": "zero-one",
            f"{CPUS}/smt/active": "maybe",
            "proc/cpuinfo": "\x00\xff::\n\n:",
            f"{CPUS}/cpu0/cache/index0/size": "big",
        },
    )
    (tmp_path / CPUS / "intel_pstate/no_turbo").mkdir(parents=True)
    found = cpu.collect(tmp_path)
    assert found["cpus"] is found["smt"] is found["turbo"] is found["model"] is None


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"intel_pstate/no_turbo": "0"}, "on"),
        ({"intel_pstate/no_turbo": "1"}, "off"),
        ({"cpufreq/boost": "1"}, "on"),
        ({"cpufreq/boost": "0"}, "off"),
        ({"cpufreq/policy0/boost": "0"}, "off"),
        ({}, None),
    ],
)
def test_turbo_of_intel_and_amd(tmp_path: Path, files: dict[str, str], state: str | None) -> None:
    assert cpu.turbo(plant(tmp_path, {f"{CPUS}/{name}": text for name, text in files.items()})) == state


def test_governor_names_every_policy_of_the_cpus_in_use(tmp_path: Path) -> None:
    names = ["performance", "powersave", "performance"]
    plant(tmp_path, {f"{CPUS}/cpu{index}/cpufreq/scaling_governor": name + "\n" for index, name in enumerate(names)})
    assert cpu.governor(tmp_path, [0, 2]) == "performance"
    assert cpu.governor(tmp_path, [0, 1]) == "performance, powersave"
    assert cpu.governor(tmp_path, [7]) is None


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, "kvm"),
        ({"sys/class/dmi/id/product_name": "VMware Virtual Platform"}, "vmware"),
        ({"sys/hypervisor/type": "xen"}, "xen"),
        ({"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock"}, "kvm"),
        ({"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, "wsl"),
        ({}, "unknown"),
    ],
)
def test_guests(tmp_path: Path, files: dict[str, str], name: str) -> None:
    plant(xeon(tmp_path, more=" hypervisor"), files)
    assert cpu.collect(tmp_path)["virtual"] == name


def test_an_arm_machine_has_a_name_and_cores_without_core_ids(tmp_path: Path) -> None:
    block = "processor\t: {}\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
    plant(
        tmp_path,
        {
            "proc/cpuinfo": block.format(0) + block.format(1),
            f"{CPUS}/cpu0/topology/thread_siblings_list": "0",
            f"{CPUS}/cpu1/topology/thread_siblings_list": "1",
        },
    )
    found = cpu.collect(tmp_path)
    assert (found["model"], found["cores"], found["cpus"], found["flags"]) == ("Neoverse V2", 2, 2, ["asimd", "fp"])


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpu_lists_read_back(cpus: set[int]) -> None:
    assert cpu.parse_list(",".join(map(str, sorted(cpus)))) == sorted(cpus)
    assert cpu.parse_list(f"{min(cpus)}-{max(cpus)}") == list(range(min(cpus), max(cpus) + 1))
