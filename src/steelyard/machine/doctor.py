"""Is this machine fit to measure, and what to change: one small function per check, each with the exact command and what it is worth."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from steelyard.machine import locks
from steelyard.machine.cpu import CPUS, ROOT, number, read
from steelyard.machine.facts import release
from steelyard.model.units import percent, plain

Status = Literal["ok", "note", "warn", "bad"]

_CLOCKS = "sys/devices/system/clocksource/clocksource0"
_HUGE = "sys/kernel/mm/transparent_hugepage/enabled"
_INSTALL = {
    "debian": "sudo apt-get install g++",
    "fedora": "sudo dnf install gcc-c++",
    "rhel": "sudo dnf install gcc-c++",
    "suse": "sudo zypper install gcc-c++",
    "arch": "sudo pacman -S gcc",
    "alpine": "sudo apk add g++",
}


@dataclass(frozen=True)
class Finding:
    """One thing seen: what it is, what to change, and how much that matters to a timing."""

    name: str
    status: Status
    saw: str
    do: str = ""
    matters: str = ""


@dataclass(frozen=True)
class Scene:
    """What a check may look at: the facts, the root of the file system, and the folder where results go."""

    facts: dict[str, Any]
    root: Path
    store: Path

    def part(self, name: str) -> dict[str, Any]:
        """One group of facts, empty where it is null."""
        return self.facts.get(name) or {}


Check = Callable[[Scene], "Finding | None"]


def examine(facts: dict[str, Any], *, root: Path = ROOT, store: Path | None = None) -> list[Finding]:
    """Run every check; one that breaks on an odd machine says so instead of stopping the others."""
    scene = Scene(facts, root, store or Path.cwd())
    return [finding for check in CHECKS if (finding := _run(check, scene)) is not None]


def _run(check: Check, scene: Scene) -> Finding | None:
    try:
        finding = check(scene)
        return replace(finding, do="") if finding and finding.status == "ok" else finding
    except Exception as error:
        return Finding(check.__name__, "note", f"could not be checked: {type(error).__name__}: {error}")


def load(scene: Scene) -> Finding:
    """A busy machine is the largest error of all."""
    averages, cpus = scene.facts.get("load"), scene.part("cpu").get("cpus")
    if not averages or not cpus:
        return Finding("load", "note", "load average not readable")
    share = averages[0] / cpus
    status: Status = "ok" if share < 0.3 else "warn" if share < 1 else "bad"
    saw = f"{averages[0]:.2f} tasks on {cpus} CPUs over the last minute"
    return Finding(
        "load",
        status,
        saw,
        "stop what is busy: ps -eo pcpu,pid,args --sort=-pcpu | head",
        "a busy neighbour slows a CPU op by 10-85 %; pairs stay fair, single numbers do not",
    )


def governor(scene: Scene) -> Finding:
    """Clocks that follow the load make the first milliseconds slow."""
    name = scene.part("cpu").get("governor")
    if not name:
        return Finding(
            "governor", "note", "not visible here (usual in a guest)", matters="the host decides the clock: unknown, often 0-10 %"
        )
    status: Status = "ok" if name == "performance" else "warn"
    return Finding(
        "governor",
        status,
        name,
        f"echo performance | sudo tee /{CPUS}/cpu*/cpufreq/scaling_governor",
        "clocks ramp up during a sample: 5-50 % on short ones",
    )


def turbo(scene: Scene) -> Finding:
    """Turbo clocks depend on heat and on neighbours."""
    state = scene.part("cpu").get("turbo")
    if state is None:
        return Finding(
            "turbo", "note", "not visible here (usual in a guest)", matters="drift with heat: 0-30 % between runs; pairs cancel it"
        )
    intel = (scene.root / CPUS / "intel_pstate/no_turbo").exists()
    change = f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo" if intel else f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    return Finding(
        "turbo", "ok" if state == "off" else "note", state, change, "drift with heat and neighbours: 5-30 % between runs; pairs cancel it"
    )


def smt(scene: Scene) -> Finding:
    """Two threads on one core slow each other, also when they belong to two guests of one host."""
    active, guest = scene.part("cpu").get("smt"), scene.part("cpu").get("virtual") != "none"
    matters = "a busy sibling thread slows a core by up to 85 %; none if idle"
    if active is None or (guest and not active):
        return Finding(
            "smt", "note", "not visible here; the CPUs of a guest may share cores" if guest else "not visible here", matters=matters
        )
    saw = "on: two logical CPUs share a core" if active else "off"
    return Finding("smt", "note" if active else "ok", saw, f"echo off | sudo tee /{CPUS}/smt/control", matters)


def steal(scene: Scene) -> Finding:
    """In a guest, the host may take the CPU away unseen; the kernel counts how often."""
    kind = scene.part("cpu").get("virtual")
    if kind == "none":
        return Finding("virtual", "ok", "bare metal")
    share = stolen(read(scene.root, "proc/stat") or "")
    if share is None:
        return Finding("virtual", "note", f"{kind or 'unknown'}; steal time not readable", matters="neighbours on the host: 0-50 %, unseen")
    status: Status = "note" if share < 0.01 else "warn" if share < 0.1 else "bad"
    saw = f"{kind or 'unknown'}; the host took {percent(share)} of busy time since boot"
    return Finding(
        "virtual",
        status,
        saw,
        "compare in pairs (--vs), or measure on bare metal or a dedicated host",
        "neighbours on the host: 1-50 % on single numbers, unseen",
    )


def stolen(stat: str) -> float | None:
    """Share of non-idle time that the hypervisor gave to someone else."""
    words = stat.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None
    ticks = [int(word) for word in words[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]
    return ticks[7] / busy if busy > 0 else 0.0


def quota(scene: Scene) -> Finding:
    """A CPU quota stops the process in mid-sample once it is spent."""
    limits = scene.part("cgroup")
    cores, throttled, periods = limits.get("cpu_quota"), limits.get("throttled"), limits.get("periods")
    if cores is None:
        return Finding("cpu quota", "ok", "none")
    saw = f"{cores:g} cores" + (f"; throttled in {throttled} of {periods} periods" if periods else "")
    change = "pin CPUs instead of a quota: docker run --cpuset-cpus=0-3 in place of --cpus"
    return Finding(
        "cpu quota", "warn" if throttled else "note", saw, change, "a throttled sample waits up to 0.1 s: 2 to 100 times its length"
    )


def memory(scene: Scene) -> Finding:
    """Too little memory turns timings into disk timings."""
    table, limit = scene.part("memory"), scene.part("cgroup").get("memory_limit")
    total, available, swapped = table.get("total"), table.get("available"), table.get("swap_used") or 0
    if not total or available is None:
        return Finding("memory", "note", "not readable")
    free = min(available, limit) if limit else available
    tight, paged = free < max(2**30, total // 20), swapped > 2**26
    saw = f"{plain(free, 'B')} available of {plain(total, 'B')}; {plain(swapped, 'B') if swapped else 'nothing'} swapped out"
    status: Status = "bad" if tight and paged else "warn" if tight or paged else "ok"
    change = "free some memory" if tight else "sudo swapoff -a && sudo swapon -a"
    return Finding("memory", status, saw, change, "a page from swap costs 0.1-10 ms: 10 to 1000 times a sample")


def aslr(scene: Scene) -> Finding:
    """Random layout is noise that averages out; a frozen one is bias that does not."""
    level = number(scene.root, "proc/sys/kernel/randomize_va_space")
    if level is None:
        return Finding("aslr", "note", "not readable")
    if level:
        return Finding("aslr", "ok", f"on ({level}); placement varies and is averaged over rebuilds")
    return Finding(
        "aslr",
        "note",
        "off: every process has one frozen layout",
        "sudo sysctl kernel.randomize_va_space=2",
        "repeatable but biased, up to 9 % on memory-bound ops",
    )


def clock(scene: Scene) -> Finding:
    """A clock outside the CPU makes every reading a system call or worse."""
    name, offered = read(scene.root, f"{_CLOCKS}/current_clocksource"), read(scene.root, f"{_CLOCKS}/available_clocksource") or ""
    if not name:
        return Finding("clock source", "note", "not readable")
    fast = name in ("tsc", "arch_sys_counter", "kvm-clock", "timebase", "tod") or name.startswith("hyperv")
    change = (
        f"echo tsc | sudo tee /{_CLOCKS}/current_clocksource"
        if "tsc" in offered.split()
        else "ask for an invariant TSC in the BIOS or the hypervisor"
    )
    return Finding("clock source", "ok" if fast else "bad", name, change, "each reading takes 1-5 µs: over 1 % of samples below 0.1 ms")


def timer(scene: Scene) -> Finding:
    """What reading the clock costs here decides how short a sample may be."""
    now = time.perf_counter_ns
    ticks = [now() for _ in range(4001)]
    steps = [late - early for early, late in pairwise(ticks)]
    cost, step = median(steps) * 1e-9, min((step for step in steps if step), default=math.inf) * 1e-9
    status: Status = "ok" if cost < 3e-7 and step < 1e-6 else "warn" if step < 2e-5 else "bad"
    saw = f"{plain(cost, 's')} a reading, smallest step {plain(step, 's')}"
    return Finding("timer", status, saw, "see clock source", f"{percent(2 * cost / 1e-4)} of a 0.1 ms sample; its mean is subtracted")


def compiler(scene: Scene) -> Finding:
    """torch.compile on a CPU builds C++ at run time."""
    found = scene.part("compilers")
    version = next((found[name] for name in ("g++", "clang", "gcc") if found.get(name)), None)
    if found.get("g++") or found.get("clang"):
        return Finding("c++ compiler", "ok", str(version))
    described = release(scene.root)
    kin = [described.get("ID", ""), *described.get("ID_LIKE", "").split()]
    change = next(
        (command for name, command in _INSTALL.items() if any(name in word for word in kin)), "install g++ with your system's package tool"
    )
    return Finding(
        "c++ compiler", "warn", "no g++ or clang on PATH", change, "torch.compile on CPU fails without one; eager is not affected"
    )


def torch(scene: Scene) -> Finding:
    """Most built-in workloads run on PyTorch."""
    version = scene.part("packages").get("torch")
    if version:
        return Finding("torch", "ok", str(version))
    return Finding(
        "torch",
        "warn",
        "not installed",
        "python -m pip install 'steelyard[torch]'",
        "workloads on torch are unsupported here; numpy and shell commands still run",
    )


def disk(scene: Scene) -> Finding:
    """A run that cannot be saved is a run lost."""
    place = next(path for path in (scene.store, *scene.store.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    status: Status = "ok" if free > 2**30 else "warn" if free > 2**26 else "bad"
    return Finding(
        "disk",
        status,
        f"{plain(free, 'B')} free for results",
        "free some space on the disk that holds the results",
        "no effect on timings; a full disk ends the run early",
    )


def counters(scene: Scene) -> Finding:
    """Instruction counts need the kernel's leave and a counter the hypervisor passes on."""
    level = number(scene.root, "proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return Finding("perf counters", "note", "this kernel has none", matters="no effect on timings; no instruction counts")
    if level > 2:
        change = "sudo sysctl kernel.perf_event_paranoid=2"
        return Finding(
            "perf counters", "note", f"forbidden (perf_event_paranoid={level})", change, "no effect on timings; no instruction counts"
        )
    devices = scene.root / "sys/bus/event_source/devices"
    if not any(path.name == "cpu" or path.name.startswith(("cpu_", "armv8")) for path in devices.glob("*")):
        return Finding(
            "perf counters",
            "note",
            "allowed, but no hardware counter is visible (usual in a guest)",
            matters="no effect on timings; no instruction counts",
        )
    return Finding("perf counters", "ok", f"allowed (perf_event_paranoid={level})")


def hugepages(scene: Scene) -> Finding:
    """Huge pages given at the kernel's whim move large arrays between two speeds."""
    text = read(scene.root, _HUGE)
    if not text:
        return Finding("huge pages", "note", "not readable")
    mode = text.partition("[")[2].partition("]")[0] or text
    change = f"echo madvise | sudo tee /{_HUGE}"
    return Finding(
        "huge pages", "note" if mode == "always" else "ok", mode, change, "large arrays jump between two speeds as pages merge: 1-10 %"
    )


def gpu_driver(scene: Scene) -> Finding | None:
    """A GPU that cannot be asked about cannot be locked, watched or named in a result."""
    gpus = scene.facts.get("gpus") or []
    if gpus:
        names = ", ".join(f"{gpu['index']}: {gpu['name']}" for gpu in gpus)
        return Finding("gpu", "ok", f"{names}; driver {gpus[0]['driver']}")
    if (scene.root / "proc/driver/nvidia/version").exists() or (scene.root / "dev/nvidia0").exists():
        return Finding(
            "gpu",
            "warn",
            "a driver but no answer about the GPUs",
            "python -m pip install 'steelyard[nvidia]'",
            "runs would not say which GPU they measured",
        )
    return None


def gpu_persistence(scene: Scene) -> Finding | None:
    """Without persistence the driver unloads between processes and each start pays for it."""
    states = [gpu.get("persistence") for gpu in scene.facts.get("gpus") or []]
    if not states or all(state is None for state in states):
        return None
    off = states.count(False)
    return Finding(
        "gpu persistence",
        "warn" if off else "ok",
        f"off on {off} of {len(states)}" if off else "on",
        "sudo nvidia-smi -pm 1",
        "1-3 s at each start, and clock locks are lost between processes",
    )


def gpu_clocks(scene: Scene) -> Finding | None:
    """GPU clocks follow heat and power; a lock removes most of the drift between runs, and a slowdown in force spoils every number."""
    gpus = [gpu for gpu in scene.facts.get("gpus") or [] if gpu.get("clock_hz")]
    if not gpus:
        return None
    slowed = {cause for gpu in gpus for cause in gpu.get("slowed") or []}
    now = ", ".join(f"{plain(gpu['clock_hz'], 'Hz')} of {plain(gpu['clock_max_hz'] or gpu['clock_hz'], 'Hz')}" for gpu in gpus)
    if slowed:
        return Finding(
            "gpu clocks",
            "bad",
            f"{now}; slowed now by {', '.join(sorted(slowed))}",
            "let it cool, or see: nvidia-smi -q -d PERFORMANCE",
            "5-50 % slower than the GPU is",
        )
    if all(gpu.get("clocks_set") for gpu in gpus):
        return Finding("gpu clocks", "ok", f"{now}; held by a clock setting")
    change = "sudo nvidia-smi -lgc MHZ,MHZ   (afterwards: sudo nvidia-smi -rgc)"
    return Finding(
        "gpu clocks",
        "note",
        f"{now}; no clock setting in force (a lock may not show while idle)",
        change,
        "drift with heat and power: 1-10 % between runs; pairs cancel it",
    )


def others(scene: Scene) -> Finding:
    """Another run on the same CPU or GPU would disturb this one, so ours would wait."""
    held = locks.held()
    if not held:
        return Finding("other runs", "ok", "none holds a lock")
    saw = f"{', '.join(held)} held by {'; '.join(sorted(set(held.values())))}"
    return Finding(
        "other runs",
        "warn",
        saw,
        "wait for it to end; a new run waits by itself",
        "two runs on one CPU: 100 % and more, which is why they queue",
    )


CHECKS: tuple[Check, ...] = (
    load, governor, turbo, smt, steal, quota, memory, aslr, clock, timer, compiler, torch, disk, counters, hugepages,
    gpu_driver, gpu_persistence, gpu_clocks, others,
)  # fmt: skip
