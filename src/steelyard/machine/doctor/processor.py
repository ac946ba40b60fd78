"""Checks of the processor: what else uses it, how its clock is set, and its idle states."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from steelyard.machine.cpu import CPUS, number, parse_list, read
from steelyard.machine.doctor.findings import Observation, Scene, Status
from steelyard.model.units import percent, plain

DEEP_S = 1e-5
"""Seconds to wake from an idle state, up to which they do not matter."""
UNSEEN = "not visible here (usual in a guest)"


def load(scene: Scene) -> Observation:
    """A busy machine causes the largest errors."""
    averages, cpus = scene.facts.get("load"), scene.part("cpu").get("cpus")
    if not averages or not cpus:
        return Observation("load", "note", "load average not readable")
    share = averages[0] / cpus
    status: Status = "ok" if share < 0.3 else "warn" if share < 1 else "bad"
    saw = f"{averages[0]:.2f} tasks on {cpus} CPUs over the last minute"
    change = "stop what is busy: ps -eo pcpu,pid,args --sort=-pcpu | head"
    matters = "a busy neighbour slows a CPU op by 10-85 %; pairs stay fair, single numbers do not"
    return Observation("load", status, saw, change, matters)


def governor(scene: Scene) -> Observation:
    """Clocks that follow the load make the first milliseconds slow."""
    name = scene.part("cpu").get("governor")
    if not name:
        return Observation("governor", "note", UNSEEN, matters="the host decides the clock: unknown, often 0-10 %")
    change = f"echo performance | sudo tee /{CPUS}/cpu*/cpufreq/scaling_governor"
    matters = "clocks ramp up during a sample: 5-50 % on short ones"
    return Observation("governor", "ok" if name == "performance" else "warn", name, change, matters)


def energy(scene: Scene) -> Observation | None:
    """A processor that chooses its own clock follows an energy preference, whatever the governor is called."""
    said = {read(scene.root, f"{CPUS}/cpu{cpu}/cpufreq/energy_performance_preference") for cpu in _in_use(scene)}
    named = sorted(name for name in said if name)
    if not named:
        return None
    best = all(name in ("performance", "0") for name in named)
    saving = any(name in ("power", "balance_power") for name in named)
    status: Status = "ok" if best else "warn" if saving else "note"
    change = f"echo performance | sudo tee /{CPUS}/cpu*/cpufreq/energy_performance_preference"
    matters = "the processor saves energy between samples: 1-20 % on short ones"
    return Observation("energy preference", status, ", ".join(named), change, matters)


def turbo(scene: Scene) -> Observation:
    """Turbo clocks depend on heat and on neighbours."""
    state = scene.part("cpu").get("turbo")
    if state is None:
        return Observation("turbo", "note", UNSEEN, matters="drift with heat: 0-30 % between runs; pairs cancel it")
    intel = (scene.root / CPUS / "intel_pstate/no_turbo").exists()
    change = f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo" if intel else f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    matters = "drift with heat and neighbours: 5-30 % between runs; pairs cancel it"
    return Observation("turbo", "ok" if state == "off" else "note", state, change, matters)


def smt(scene: Scene) -> Observation:
    """Two threads on one core slow each other, also when they belong to two guests of one host."""
    active, guest = scene.part("cpu").get("smt"), scene.part("cpu").get("virtual") != "none"
    matters = "a busy sibling thread slows a core by up to 85 %; none if idle"
    if active is None or (guest and not active):
        saw = "not visible here; the CPUs of a guest may share cores" if guest else "not visible here"
        return Observation("smt", "note", saw, matters=matters)
    saw = "on: two logical CPUs share a core" if active else "off"
    return Observation("smt", "note" if active else "ok", saw, f"echo off | sudo tee /{CPUS}/smt/control", matters)


def steal(scene: Scene) -> Observation:
    """In a guest, the host may take the CPU away unnoticed; the kernel counts for how long."""
    kind = scene.part("cpu").get("virtual")
    if kind == "none":
        return Observation("virtual", "ok", "bare metal")
    kind, share = kind or "unknown", stolen(read(scene.root, "proc/stat") or "")
    if share is None:
        return Observation("virtual", "note", f"{kind}; steal time not readable", matters="neighbours on the host: 0-50 %, unseen")
    status: Status = "note" if share < 0.01 else "warn" if share < 0.1 else "bad"
    saw = f"{kind}; the host took {percent(share)} of busy time since boot"
    change = "compare in pairs (--vs), or measure on bare metal or a dedicated host"
    return Observation("virtual", status, saw, change, "neighbours on the host: 1-50 % on single numbers, unseen")


def stolen(stat: str) -> float | None:
    """Share of non-idle time that the hypervisor gave to other guests."""
    words = stat.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None
    ticks = [int(word) for word in words[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]
    return ticks[7] / busy if busy > 0 else 0.0


def quota(scene: Scene) -> Observation:
    """A process that has spent its CPU quota is stopped in the middle of a sample."""
    limits = scene.part("cgroup")
    cores, throttled, periods = limits.get("cpu_quota"), limits.get("throttled"), limits.get("periods")
    if cores is None:
        return Observation("cpu quota", "ok", "none")
    saw = f"{cores:g} cores" + (f"; throttled in {throttled} of {periods} periods" if periods else "")
    change = "pin CPUs instead of a quota: docker run --cpuset-cpus=0-3 in place of --cpus"
    matters = "a throttled sample waits up to 0.1 s: 2 to 100 times its length"
    return Observation("cpu quota", "warn" if throttled else "note", saw, change, matters)


def idle(scene: Scene) -> Observation | None:
    """A core in a deep idle state wakes late and with cold caches."""
    states = _idle_states(scene.root, next(iter(_in_use(scene)), 0))
    if not states:
        return None
    deep = [(place, name, latency) for place, name, latency, on in states if on and latency > DEEP_S]
    if not deep:
        return Observation("idle states", "ok", f"none that takes longer than {plain(DEEP_S, 's')} to leave")
    _, name, latency = max(deep, key=lambda state: state[2])
    first = min(state[0] for state in deep)
    span = f"[{first}-9]" if first < 9 else str(first)
    change = f"echo 1 | sudo tee /{CPUS}/cpu*/cpuidle/state{span}/disable   (later: echo 0)"
    matters = "after each wait the first calls are late and cold: 1-10 % where a call waits for a device or a file"
    return Observation("idle states", "note", f"{name} takes {plain(latency, 's')} to leave", change, matters)


def _idle_states(root: Path, cpu: int) -> list[tuple[int, str, float, bool]]:
    """Number, name, seconds to leave and whether it is allowed, for each idle state of a CPU."""
    found = []
    for folder in sorted((root / CPUS / f"cpu{cpu}/cpuidle").glob("state[0-9]*")):
        latency, digits = number(folder, "latency"), folder.name.removeprefix("state")
        if latency is not None and digits.isdigit():
            found.append((int(digits), read(folder, "name") or folder.name, latency * 1e-6, not number(folder, "disable")))
    return found


def isolated(scene: Scene) -> Observation | None:
    """Isolated CPUs help only programs that run on them."""
    text = read(scene.root, f"{CPUS}/isolated") or ""
    apart = set(parse_list(text))
    if not apart:
        return None
    if set(_in_use(scene)) <= apart:
        return Observation("isolated cpus", "ok", f"runs on them ({text})")
    saw, change = f"{text} are set apart and not used here", f"taskset -c {text} steelyard run …"
    return Observation(
        "isolated cpus", "note", saw, change, "on them no other task, and few interrupts, come between: 1-10 % of noise less"
    )


def balancing(scene: Scene) -> Observation | None:
    """A kernel that moves pages to the node that uses them does so in the middle of a run."""
    level = number(scene.root, "proc/sys/kernel/numa_balancing")
    nodes = len(list((scene.root / "sys/devices/system/node").glob("node[0-9]*")))
    if level is None or nodes < 2:
        return None
    saw, matters = f"{'on' if level else 'off'} over {nodes} nodes", "pages move between nodes in mid-run: 1-10 % on memory-bound ops"
    return Observation("numa balancing", "note" if level else "ok", saw, "sudo sysctl kernel.numa_balancing=0", matters)


def _in_use(scene: Scene) -> Iterable[int]:
    return scene.part("cpu").get("affinity") or []
