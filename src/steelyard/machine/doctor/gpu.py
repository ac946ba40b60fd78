"""Checks of the GPUs: their clocks, what limits these, and what else uses the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.machine.doctor.findings import Observation, Scene, Status
from steelyard.model.units import percent, plain

STEADY_SHARE, CLOCK_STEP = 0.8, 15
QUIET_SHARE, BUSY_SHARE = 0.05, 0.3
Gpu = Mapping[str, Any]


def gpu_driver(scene: Scene) -> Observation | None:
    """Without an answer from the driver a GPU cannot be locked, monitored or named in a result."""
    if scene.gpus:
        names = ", ".join(f"{gpu['index']}: {gpu['name']}" for gpu in scene.gpus)
        return Observation("gpu", "ok", f"{names}; driver {scene.gpus[0]['driver']}")
    if (scene.root / "proc/driver/nvidia/version").exists() or (scene.root / "dev/nvidia0").exists():
        change, matters = "python -m pip install 'steelyard[nvidia]'", "runs could not record which GPU they measured"
        return Observation("gpu", "warn", "a driver but no answer about the GPUs", change, matters)
    return None


def gpu_persistence(scene: Scene) -> Observation | None:
    """Without persistence the driver unloads between processes, which makes each start slow."""
    matters = "1-3 s at each start, and clock locks are lost between processes"
    return _switch("gpu persistence", scene.gpus, "persistence", right=True, wrong="warn", change="sudo nvidia-smi -pm 1", matters=matters)


def gpu_clocks(scene: Scene) -> Observation | None:
    """GPU clocks follow heat and power; a lock removes most drift between runs, and a current slowdown spoils every number."""
    gpus = [gpu for gpu in scene.gpus if gpu.get("clock_hz")]
    if not gpus:
        return None
    slowed = {cause for gpu in gpus for cause in gpu.get("slowed") or []}
    now = ", ".join(f"{plain(gpu['clock_hz'], 'Hz')} of {plain(gpu['clock_max_hz'] or gpu['clock_hz'], 'Hz')}" for gpu in gpus)
    if slowed:
        saw, change = f"{now}; slowed now by {', '.join(sorted(slowed))}", "let it cool, or see: nvidia-smi -q -d PERFORMANCE"
        return Observation("gpu clocks", "bad", saw, change, "5-50 % slower than the GPU is")
    if all(gpu.get("clocks_set") for gpu in gpus):
        return Observation("gpu clocks", "ok", f"{now}; held by a clock setting")
    steady = steady_mhz(min(gpu["clock_max_hz"] or gpu["clock_hz"] for gpu in gpus))
    change = f"sudo nvidia-smi -lgc {steady},{steady}   (afterwards: sudo nvidia-smi -rgc)"
    saw = f"{now}; no clock setting in force (a lock may not show while idle)"
    return Observation("gpu clocks", "note", saw, change, "drift with heat and power: 1-10 % between runs; pairs cancel it")


def steady_mhz(highest: float) -> int:
    """A clock in MHz that heat will hardly force down: four fifths of the highest, rounded down to a step of clocks."""
    return max(CLOCK_STEP, int(STEADY_SHARE * highest / 1e6) // CLOCK_STEP * CLOCK_STEP)


def gpu_applied(scene: Scene) -> Observation | None:
    """An application clock stays set for all users until it is reset."""
    known = [gpu for gpu in scene.settings if gpu.get("applied_hz") and gpu.get("applied_default_hz")]
    moved = [gpu for gpu in known if gpu["applied_hz"] != gpu["applied_default_hz"]]
    matters = "steady, and every number is that of a GPU at this clock: compare with runs at the same one"
    return _delivered("gpu application clocks", known, moved, ("applied_hz", "applied_default_hz", "Hz"), "sudo nvidia-smi -rac", matters)


def _delivered(
    name: str, known: Sequence[Gpu], moved: Sequence[Gpu], figure: tuple[str, str, str], change: str, matters: str
) -> Observation | None:
    """The finding for a setting: as delivered, or how the `moved` ones differ; `figure` names its keys (now, as delivered) and unit."""
    if not known:
        return None
    key, usual, unit = figure
    if not moved:
        return Observation(name, "ok", f"as delivered ({plain(known[0][key], unit)})")
    saw = ", ".join(f"{gpu['index']}: {plain(gpu[key], unit)}, delivered {plain(gpu[usual], unit)}" for gpu in moved)
    return Observation(name, "note", saw, change, matters)


def gpu_boost(scene: Scene) -> Observation | None:
    """Older GPUs choose a higher clock by themselves while heat and power allow it."""
    change = "export CUDA_AUTO_BOOST=0   (for all users: sudo nvidia-smi --auto-boost-default=0)"
    matters = "clocks follow heat and power: 1-15 % between runs; pairs cancel it"
    return _switch("gpu auto boost", scene.settings, "boost", right=False, wrong="note", change=change, matters=matters)


def _switch(name: str, gpus: Sequence[Gpu], key: str, *, right: bool, wrong: Status, change: str, matters: str) -> Observation | None:
    """The finding for a switch: right on every GPU, or wrong on how many; None if no GPU reports it."""
    states = [gpu.get(key) for gpu in gpus]
    if all(state is None for state in states):
        return None
    if count := states.count(not right):
        return Observation(name, wrong, f"{'off on' if right else 'on for'} {count} of {len(states)}", change, matters)
    return Observation(name, "ok", "on" if right else "off", change, matters)


def gpu_power(scene: Scene) -> Observation | None:
    """A lowered power limit slows long kernels but not short ones."""
    known = [gpu for gpu in scene.settings if gpu.get("power_limit") and gpu.get("power_default")]
    lowered = [gpu for gpu in known if gpu["power_limit"] < 0.99 * gpu["power_default"]]
    change = f"sudo nvidia-smi -i {lowered[0]['index']} -pl {lowered[0]['power_default']:.0f}" if lowered else ""
    matters = "long, heavy kernels run at lower clocks: 5-40 %"
    return _delivered("gpu power limit", known, lowered, ("power_limit", "power_default", "W"), change, matters)


def gpu_load(scene: Scene) -> Observation | None:
    """A process on the same GPU takes turns with the measured one."""
    known = [gpu for gpu in scene.settings if gpu.get("busy") is not None or gpu.get("processes") is not None]
    if not known:
        return None
    shared = [gpu for gpu in known if (gpu.get("busy") or 0) > QUIET_SHARE or gpu.get("processes")]
    if not shared:
        return Observation("gpu load", "ok", "idle, and no other process on it")
    status: Status = "bad" if any((gpu.get("busy") or 0) > BUSY_SHARE for gpu in shared) else "warn"
    saw = ", ".join(f"{gpu['index']}: {_crowd(gpu)}" for gpu in shared)
    change = "stop what uses it: nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"
    matters = "two processes take turns on a GPU: 10-100 %; an idle one holds memory and keeps clocks up"
    return Observation("gpu load", status, saw, change, matters)


def _crowd(gpu: Gpu) -> str:
    count, busy = gpu.get("processes"), gpu.get("busy")
    words = [f"{count} process{'es' if count > 1 else ''}"] if count else []
    return ", ".join([*words, *([f"{percent(busy)} busy"] if busy is not None else [])])
