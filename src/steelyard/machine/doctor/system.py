"""Checks of the system around the processor: memory, timers, what is installed, and other runs."""

from __future__ import annotations

import math
import shutil
import time
from itertools import pairwise
from statistics import median

from steelyard.machine import locks
from steelyard.machine.cpu import number, read
from steelyard.machine.doctor.findings import Observation, Scene, Status
from steelyard.machine.facts import release
from steelyard.model.units import percent, plain

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


def memory(scene: Scene) -> Observation:
    """Too little memory turns timings into disk timings."""
    table, limit = scene.part("memory"), scene.part("cgroup").get("memory_limit")
    total, available, swapped = table.get("total"), table.get("available"), table.get("swap_used") or 0
    if not total or available is None:
        return Observation("memory", "note", "not readable")
    free = min(available, limit) if limit else available
    tight, paged = free < max(2**30, total // 20), swapped > 2**26
    saw = f"{plain(free, 'B')} available of {plain(total, 'B')}; {plain(swapped, 'B') if swapped else 'nothing'} swapped out"
    status: Status = "bad" if tight and paged else "warn" if tight or paged else "ok"
    change = "free some memory" if tight else "sudo swapoff -a && sudo swapon -a"
    return Observation("memory", status, saw, change, "a page from swap costs 0.1-10 ms: 10 to 1000 times a sample")


def aslr(scene: Scene) -> Observation:
    """A random memory layout is noise that averages out; a fixed one is bias that does not."""
    level = number(scene.root, "proc/sys/kernel/randomize_va_space")
    if level is None:
        return Observation("aslr", "note", "not readable")
    if level:
        return Observation("aslr", "ok", f"on ({level}); placement varies and is averaged over rebuilds")
    change, matters = "sudo sysctl kernel.randomize_va_space=2", "repeatable but biased, up to 9 % on memory-bound ops"
    return Observation("aslr", "note", "off: every process has one frozen layout", change, matters)


def clock(scene: Scene) -> Observation:
    """Reading a clock outside the CPU takes a system call or longer."""
    name, offered = read(scene.root, f"{_CLOCKS}/current_clocksource"), read(scene.root, f"{_CLOCKS}/available_clocksource") or ""
    if not name:
        return Observation("clock source", "note", "not readable")
    fast = name in ("tsc", "arch_sys_counter", "kvm-clock", "timebase", "tod") or name.startswith("hyperv")
    change = "ask for an invariant TSC in the BIOS or the hypervisor"
    if "tsc" in offered.split():
        change = f"echo tsc | sudo tee /{_CLOCKS}/current_clocksource"
    return Observation("clock source", "ok" if fast else "bad", name, change, "each reading takes 1-5 µs: over 1 % of samples below 0.1 ms")


def timer(scene: Scene) -> Observation:
    """The cost of reading the clock decides how short a sample may be."""
    now = time.perf_counter_ns
    ticks = [now() for _ in range(4001)]
    steps = [late - early for early, late in pairwise(ticks)]
    cost, step = median(steps) * 1e-9, min((step for step in steps if step), default=math.inf) * 1e-9
    status: Status = "ok" if cost < 3e-7 and step < 1e-6 else "warn" if step < 2e-5 else "bad"
    saw = f"{plain(cost, 's')} a reading, smallest step {plain(step, 's')}"
    return Observation("timer", status, saw, "see clock source", f"{percent(2 * cost / 1e-4)} of a 0.1 ms sample; its mean is subtracted")


def compiler(scene: Scene) -> Observation:
    """torch.compile on a CPU builds C++ at run time."""
    found = scene.part("compilers")
    version = next((found[name] for name in ("g++", "clang", "gcc") if found.get(name)), None)
    if found.get("g++") or found.get("clang"):
        return Observation("c++ compiler", "ok", str(version))
    described = release(scene.root)
    kin = [described.get("ID", ""), *described.get("ID_LIKE", "").split()]
    ways = [command for name, command in _INSTALL.items() if any(name in word for word in kin)]
    change = [*ways, "install g++ with your system's package tool"][0]
    matters = "torch.compile on CPU fails without one; eager is not affected"
    return Observation("c++ compiler", "warn", "no g++ or clang on PATH", change, matters)


def torch(scene: Scene) -> Observation:
    """Most built-in workloads run on PyTorch."""
    version = scene.part("packages").get("torch")
    if version:
        return Observation("torch", "ok", str(version))
    matters = "workloads on torch are unsupported here; numpy and shell commands still run"
    return Observation("torch", "warn", "not installed", "python -m pip install 'steelyard[torch]'", matters)


def disk(scene: Scene) -> Observation:
    """A run that cannot be saved is lost."""
    place = next(path for path in (scene.store, *scene.store.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    status: Status = "ok" if free > 2**30 else "warn" if free > 2**26 else "bad"
    change, matters = "free some space on the disk that holds the results", "no effect on timings; a full disk ends the run early"
    return Observation("disk", status, f"{plain(free, 'B')} free for results", change, matters)


def counters(scene: Scene) -> Observation:
    """Instruction counts need the kernel's permission and, in a guest, a counter that the hypervisor provides."""
    level = number(scene.root, "proc/sys/kernel/perf_event_paranoid")
    matters = "no effect on timings; no instruction counts"
    if level is None:
        return Observation("perf counters", "note", "this kernel has none", matters=matters)
    if level > 2:
        change = "sudo sysctl kernel.perf_event_paranoid=2"
        return Observation("perf counters", "note", f"forbidden (perf_event_paranoid={level})", change, matters)
    devices = scene.root / "sys/bus/event_source/devices"
    if not any(path.name == "cpu" or path.name.startswith(("cpu_", "armv8")) for path in devices.glob("*")):
        saw = "allowed, but no hardware counter is visible (usual in a guest)"
        return Observation("perf counters", "note", saw, matters=matters)
    return Observation("perf counters", "ok", f"allowed (perf_event_paranoid={level})")


def hugepages(scene: Scene) -> Observation:
    """If the kernel decides which memory gets huge pages, large arrays switch between two speeds."""
    text = read(scene.root, _HUGE)
    if not text:
        return Observation("huge pages", "note", "not readable")
    mode = text.partition("[")[2].partition("]")[0] or text
    change, matters = f"echo madvise | sudo tee /{_HUGE}", "large arrays jump between two speeds as pages merge: 1-10 %"
    return Observation("huge pages", "note" if mode == "always" else "ok", mode, change, matters)


def others(scene: Scene) -> Observation:
    """Another run on the same CPU or GPU would disturb a new one, so the new one waits."""
    held = locks.held()
    if not held:
        return Observation("other runs", "ok", "none holds a lock")
    saw = f"{', '.join(held)} held by {'; '.join(sorted(set(held.values())))}"
    change, matters = "wait for it to end; a new run waits by itself", "two runs on one CPU: 100 % and more, which is why they queue"
    return Observation("other runs", "warn", saw, change, matters)
