"""Facts about the processor and its settings, read from /proc and /sys so that no tool has to be installed or started."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path("/")
CPUS = "sys/devices/system/cpu"

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_ARM_CORES = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse N1",
    ("0x41", "0xd40"): "Neoverse V1",
    ("0x41", "0xd49"): "Neoverse N2",
    ("0x41", "0xd4f"): "Neoverse V2",
    ("0xc0", "0xac3"): "Ampere-1",
}
_DMI_NAMES = {
    "qemu": "kvm",
    "kvm": "kvm",
    "amazon ec2": "kvm",
    "google compute engine": "kvm",
    "openstack": "kvm",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "virtual machine": "hyperv",
    "xen": "xen",
    "parallels": "parallels",
}
_CLOCK_NAMES = {"kvm-clock": "kvm", "hyperv": "hyperv", "xen": "xen"}


def read(root: Path, path: str) -> str | None:
    """The stripped text of a kernel file, or None: such files may be missing, forbidden or unreadable."""
    try:
        return (root / path).read_text(errors="replace").strip().strip("\0")
    except (OSError, ValueError):
        return None


def number(root: Path, path: str) -> int | None:
    """The whole number in a kernel file; None if there is none."""
    text = read(root, path)
    return int(text) if text and re.fullmatch(r"-?\d+", text) else None


def attempt(probe: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Call a probe; None if it fails, so that an unusual machine does not stop a measurement."""
    try:
        return probe(*args, **kwargs)
    except Exception:
        return None


def affinity() -> list[int]:
    """The CPUs this process may use; all CPUs if the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def collect(root: Path = ROOT) -> dict[str, Any]:
    """Everything about the processor that explains a timing."""
    blocks = attempt(cpuinfo, root) or []
    allowed = attempt(affinity) or []
    return {
        "model": attempt(model, blocks),
        "arch": attempt(lambda: os.uname().machine),
        "flags": attempt(flags, blocks) or [],
        "cores": attempt(cores, root, blocks),
        "cpus": attempt(online, root, blocks),
        "affinity": allowed,
        "governor": attempt(governor, root, allowed),
        "turbo": attempt(turbo, root),
        "smt": attempt(smt, root),
        "virtual": attempt(virtual, root, blocks),
        "caches": attempt(caches, root) or {"L1d": None, "L2": None, "L3": None},
    }


def cpuinfo(root: Path) -> list[dict[str, str]]:
    """One table per paragraph of /proc/cpuinfo."""
    blocks: list[dict[str, str]] = [{}]
    for line in (read(root, "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            blocks[-1][key.strip()] = value.strip()
        elif blocks[-1]:
            blocks.append({})
    return [block for block in blocks if block]


def model(blocks: Iterable[dict[str, str]]) -> str | None:
    """The processor's name: x86 and POWER give it, ARM gives part numbers."""
    for block in blocks:
        named = block.get("model name") or block.get("cpu") or block.get("cpu model")
        if named:
            return " ".join(named.split())
        part = (block.get("CPU implementer", ""), block.get("CPU part", ""))
        if all(part):
            return _ARM_CORES.get(part, f"ARM implementer {part[0]} part {part[1]}")
    return None


def flags(blocks: Iterable[dict[str, str]]) -> list[str]:
    """Instruction sets and features, sorted so that two machines can be compared by eye."""
    return next((sorted(set(block[key].split())) for block in blocks for key in ("flags", "Features") if key in block), [])


def online(root: Path, blocks: list[dict[str, str]]) -> int | None:
    """Logical CPUs that are switched on, whether or not this process may use them."""
    listed = read(root, f"{CPUS}/online")
    if listed:
        return len(parse_list(listed))
    return sum("processor" in block for block in blocks) or os.cpu_count()


def parse_list(text: str) -> list[int]:
    """The kernel's `0-3,8` notation."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def cores(root: Path, blocks: Iterable[dict[str, str]]) -> int | None:
    """Physical cores: distinct (package, core) pairs, because SMT siblings share one."""
    pairs = {(block.get("physical id", "0"), block["core id"]) for block in blocks if "core id" in block}
    if pairs:
        return len(pairs)
    siblings = {read(path, "thread_siblings_list") for path in (root / CPUS).glob("cpu[0-9]*/topology")}
    return len(siblings - {None}) or None


def governor(root: Path, cpus: Iterable[int]) -> str | None:
    """The frequency policy of the CPUs in use; several names if they differ."""
    found = {read(root, f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus}
    return ", ".join(sorted(name for name in found if name)) or None


def turbo(root: Path) -> str | None:
    """`on`, `off`, or None if the system does not say."""
    stopped = number(root, f"{CPUS}/intel_pstate/no_turbo")
    if stopped is not None:
        return "off" if stopped else "on"
    for path in (f"{CPUS}/cpufreq/boost", f"{CPUS}/cpufreq/policy0/boost"):
        boosted = number(root, path)
        if boosted is not None:
            return "on" if boosted else "off"
    return None


def smt(root: Path) -> bool | None:
    """Whether two logical CPUs share a core now."""
    active = number(root, f"{CPUS}/smt/active")
    return None if active is None else bool(active)


def virtual(root: Path, blocks: list[dict[str, str]]) -> str | None:
    """The hypervisor's name, `none` on bare metal, `unknown` for a guest of an unknown one, None if it cannot be determined."""
    if "microsoft" in (read(root, "proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    present = flags(blocks)
    if any("flags" in block for block in blocks) and "hypervisor" not in present:
        return "none"
    named = read(root, "sys/hypervisor/type")
    if named:
        return named
    firmware = " ".join(read(root, f"sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name", "bios_vendor")).lower()
    clocks = read(root, "sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    tree = read(root, "proc/device-tree/hypervisor/compatible") or ""
    for names, text in ((_DMI_NAMES, firmware), (_CLOCK_NAMES, clocks), ({"kvm": "kvm", "xen": "xen"}, tree)):
        for sign, name in names.items():
            if sign in text and "metal" not in text:
                return name
    if "hypervisor" in present:
        return "unknown"
    return "none" if firmware.strip() else None


def caches(root: Path) -> dict[str, int | None]:
    """Bytes of the data caches the first CPU sees."""
    found: dict[str, int | None] = {"L1d": None, "L2": None, "L3": None}
    for index in sorted((root / CPUS / "cpu0/cache").glob("index[0-9]*")):
        level, kind, size = (read(index, name) or "" for name in ("level", "type", "size"))
        name = "L1d" if level == "1" and kind == "Data" else f"L{level}"
        parts = re.fullmatch(r"(\d+)([KMG]?)", size)
        if name in found and kind != "Instruction" and parts:
            found[name] = int(parts[1]) * _UNITS[parts[2]]
    return found
