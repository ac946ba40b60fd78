"""Timing on an accelerator through PyTorch: events on the stream, held back so that launch gaps do not leak in, or graph replay.

CUDA and ROCm share one interface (`torch.cuda`); XPU has its own events and no way to hold the stream; MPS has events of
a kind. What a device lacks is said in the record.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import torch

from steelyard.errors import Unsupported
from steelyard.machine.telemetry import HARMFUL, Meter
from steelyard.measuring.clock import Loop
from steelyard.measuring.sample import sample
from steelyard.measuring.stats import median_interval
from steelyard.model.experiment import Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task

SHORTEST_HOLD = 2e-5
LONGEST_HOLD = 2e-2
CLOCK_EVERY = 0.01
STEADY_CLOCKS = 4
FLUSH = 2
COLD_CALLS = 40
ENERGY_SECONDS = 0.5
CHUNK = 5e-3
BRIEF = 5e-5


class EventTimer:
    """Device time between two events; the host queues the whole block while the device waits, and that is checked.

    Blocks are longer than on a host: calls must follow each other as they do at work, with the cache as the last one left
    it and the power drawn without a pause, or a kernel looks faster than it is.
    """

    method = "events, stream held back"
    block = 5e-3
    most = 200

    def __init__(self, api: Any, device: Any, meter: Meter | None) -> None:
        self.api, self.device, self.meter = api, device, meter
        self.hold = _holder(api, device)
        self.blocks = self.late = 0
        self.host: list[float] = []
        self._clocks: list[float] = []
        self._asked = 0.0

    def bind(self, task: Task) -> Loop:
        """A block between two events on the current stream."""
        fn, args, kwargs, prepare, scope = task.fn, task.args, task.kwargs, task.prepare, task.scope
        if fn is None:
            raise TypeError("a task that times itself needs no device timer")
        start, end = self.api.Event(enable_timing=True), self.api.Event(enable_timing=True)
        expected = SHORTEST_HOLD

        def queue(n: int) -> int:
            nonlocal expected
            self.hold(min(LONGEST_HOLD, 1.5 * expected + SHORTEST_HOLD))
            start.record()
            before = time.perf_counter()
            for _ in repeat(None, n):
                fn(*args, **kwargs)
            spent = time.perf_counter() - before
            late = start.query()
            end.record()
            end.synchronize()
            self.blocks += 1
            self.late += bool(late)
            self.host.append(spent / n)
            expected = spent
            elapsed: float = start.elapsed_time(end)
            return round(elapsed * 1e6)

        def prepared(n: int) -> int:
            total = 0
            for _ in repeat(None, n):
                if prepare is not None:
                    prepare()
                total += queue(1)
            return total

        loop = queue if prepare is None else prepared
        if scope is None:
            return loop

        def inside(n: int) -> int:
            with scope():
                return loop(n)

        return inside

    def disturbances(self) -> int:
        """Throttling is the device's preemption: a block taken while clocks were forced down is discarded by that cause."""
        if self.meter is None or time.monotonic() - self._asked < CLOCK_EVERY:
            return self._throttles
        self._asked = time.monotonic()
        self._throttles += bool(self.meter.reasons() & HARMFUL)
        return self._throttles

    _throttles = 0

    def steady(self) -> bool:
        """Whether the clock has stopped climbing; true at once where it cannot be read."""
        if self.meter is None:
            return True
        if not self._clocks or time.monotonic() - self._asked >= CLOCK_EVERY:
            self._asked = time.monotonic()
            self._clocks.append(self.meter.sm_clock())
        recent = self._clocks[-STEADY_CLOCKS:]
        return len(recent) == STEADY_CLOCKS and (max(recent) - min(recent) <= 0.01 * max(recent) or recent != recent)

    def report(self, device_seconds: float) -> dict[str, Any]:
        """What the timer saw of the host: launch cost, whether the device ever waited for it, and so what bounds the eager call."""
        host = statistics.median(self.host[-200:]) if self.host else float("nan")
        share = self.late / self.blocks if self.blocks else 0.0
        bound = "host" if host > device_seconds or share > 0.5 else "device"
        return {"timer": self.method, "host_time": host, "host_late": round(share, 4), "eager_bound_by": bound}


class GraphTimer(EventTimer):
    """Device time of replayed CUDA graphs: the kernels alone, with no launch between them."""

    method = "graph replay"

    def bind(self, task: Task) -> Loop:
        """Capture n calls once per n; a task that cannot be captured is told so plainly."""
        if task.prepare is not None:
            return super().bind(task)
        graphs: dict[int, Any] = {}
        plain = Task(task.fn, task.args, task.kwargs, scope=task.scope)
        fn = plain.fn

        def captured(n: int) -> Any:
            if n not in graphs:
                graphs[n] = capture(self.api, lambda: [plain() for _ in range(n)] if fn else None)
            return graphs[n]

        replays: dict[int, Loop] = {}

        def loop(n: int) -> int:
            if n not in replays:
                replays[n] = EventTimer.bind(self, Task(captured(n).replay))
            return replays[n](1)

        return loop


def capture(api: Any, work: Callable[[], Any]) -> Any:
    """A graph of the work, after the side-stream warm-up that capturing needs."""
    side = api.Stream()
    side.wait_stream(api.current_stream())
    try:
        with api.stream(side):
            for _ in range(2):
                work()
        api.current_stream().wait_stream(side)
        graph = api.CUDAGraph()
        with api.graph(graph):
            work()
    except RuntimeError as error:
        raise Unsupported("this task cannot be captured in a CUDA graph", do=str(error).split("\n")[0]) from error
    return graph


def _holder(api: Any, device: Any) -> Callable[[float], None]:
    """A function that keeps the stream busy for so many seconds without touching memory, or does nothing where there is none."""
    spin = getattr(api, "_sleep", None)
    if spin is None:
        return lambda seconds: None
    start, end = api.Event(enable_timing=True), api.Event(enable_timing=True)
    probe = 2_000_000
    for _ in range(3):
        start.record()
        spin(probe)
        end.record()
        end.synchronize()
    rate = probe / (start.elapsed_time(end) * 1e-3)
    return lambda seconds: spin(int(seconds * rate))


def cold_times(task: Task, timer: EventTimer, count: int) -> list[float]:
    """Seconds of single calls, each after the device's last-level cache was overwritten, outside the timed window."""
    size = FLUSH * int(getattr(timer.api.get_device_properties(timer.device), "L2_cache_size", 0) or 0)
    if not size:
        return []
    buffer = torch.empty(size, dtype=torch.uint8, device=timer.device)
    prepare = task.prepare

    def flush() -> None:
        if prepare is not None:
            prepare()
        buffer.fill_(1)

    loop = EventTimer.bind(timer, Task(task.fn, task.args, task.kwargs, prepare=flush, scope=task.scope))
    loop(2)
    return [loop(1) * 1e-9 for _ in range(count)]


def energy_per_call(task: Task, timer: EventTimer, seconds: float, per_call: float) -> tuple[float, float] | None:
    """Joules per call and mean watts from the device's counter, over back-to-back calls between two of its ticks.

    The counter moves in steps of many milliseconds, so a window that begins or ends inside a step would be off by one.
    """
    meter = timer.meter
    if meter is None or meter.energy() is None or task.fn is None or task.prepare is not None:
        return None
    chunk = max(1, int(CHUNK / max(per_call, 1e-7)))
    ticks: list[tuple[float, float, int]] = []
    last, calls, begin = meter.energy(), 0, time.perf_counter()
    while time.perf_counter() - begin < seconds or (len(ticks) < 2 and time.perf_counter() - begin < 4 * seconds):
        _run(task, chunk)
        timer.api.synchronize()
        calls += chunk
        now = meter.energy()
        if now is not None and now != last:
            ticks.append((now, time.perf_counter(), calls))
            last = now
    if len(ticks) < 2:
        return None
    (joules, at, done), (joules_end, at_end, done_end) = ticks[0], ticks[-1]
    return (joules_end - joules) / (done_end - done), (joules_end - joules) / (at_end - at)


def beside(task: Task, timer: EventTimer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Host time, cold-cache time, graph-replay time of brief kernels and energy, each a figure beside the hot device time."""
    facts = timer.report(seconds)
    figures = {"host_time": Figure(facts.pop("host_time"), "s", "lower", n=len(timer.host))}
    cold = np.asarray(cold_times(task, timer, min(COLD_CALLS, max(8, int(settings.budget / max(seconds, 1e-6) / 4)))))
    if len(cold):
        interval = median_interval(cold)
        figures["time_cold"] = Figure(interval.centre, "s", "lower", interval.low, interval.high, interval.n)
    if seconds < BRIEF and task.prepare is None:
        try:
            replayed = sample(
                task, GraphTimer(timer.api, timer.device, timer.meter), replace(settings, budget=settings.budget / 4)
            ).interval
            figures["graph_time"] = Figure(replayed.centre, "s", "lower", replayed.low, replayed.high, replayed.n)
        except Unsupported as error:
            facts["graph_time"] = error.what
    energy = energy_per_call(task, timer, max(ENERGY_SECONDS, settings.budget / 2), seconds)
    if energy:
        figures["energy"] = Figure(energy[0], "J", "lower")
        figures["power"] = Figure(energy[1], "W", "none")
        if task.flops:
            figures["efficiency"] = Figure(task.flops / energy[0], "FLOP/J", "higher")
    return figures, facts


def _run(task: Task, count: int) -> None:
    fn = task.fn
    assert fn is not None
    with task.scope() if task.scope else nullcontext():
        for _ in repeat(None, count):
            fn(*task.args, **task.kwargs)


def open_api(device: str) -> tuple[Any, Any]:
    """The torch module and device of a kind, or the reason why there is none here."""
    kind = "cuda" if device == "rocm" else device
    api = getattr(torch, kind, None)
    if device == "rocm" and torch.version.hip is None:
        raise Unsupported("this torch was built without ROCm", do="install a ROCm build of torch")
    if kind == "mps":
        if not torch.backends.mps.is_available():
            raise Unsupported("no MPS device: it needs macOS on Apple silicon")
        return torch.mps, torch.device("mps")
    if api is None or not hasattr(api, "is_available"):
        raise Unsupported(f"this torch knows no device kind {device!r}")
    if not api.is_available():
        without = kind == "cuda" and torch.version.cuda is None and torch.version.hip is None
        reason = "torch was built without it" if without else "none is visible"
        raise Unsupported(f"no {device} device here: {reason}", do="nvidia-smi shows what the driver sees" if kind == "cuda" else "")
    return api, torch.device(kind, api.current_device())
