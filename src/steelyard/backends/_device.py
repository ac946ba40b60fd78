"""Timing on an accelerator through PyTorch: by events on a stream that is held back, so that launch gaps are not timed, or by graph replay.

CUDA and ROCm share one interface (`torch.cuda`); XPU has its own events and no way to hold the stream; events on MPS are
limited. What a device lacks is noted in the record.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch

from steelyard import clocks
from steelyard.backends._strays import MOST_STRAYS, LeftOver
from steelyard.errors import Unsupported
from steelyard.machine.telemetry import HARMFUL, Meter
from steelyard.measuring.clock import HostTimer, Loop, empty, scoped
from steelyard.measuring.sample import sample
from steelyard.measuring.stats import median_interval, time_figure
from steelyard.model.experiment import Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task

SHORTEST_HOLD = 2e-5
LONGEST_HOLD = 2e-2
CLOCK_EVERY = 0.01
STEADY_CLOCKS = 4
FLUSH = 2
COLD_CALLS, EMPTY_CALLS = 40, 17
ENERGY_SECONDS = 0.5
CHUNK = 2.5e-2
BRIEF = 5e-5
UNREAD = "none: this device cannot be read through NVML"
UNCOUNTED = "none: the device's energy counter is updated so rarely that this needs a budget of 1 s"
PREPARED = "includes the preparation before each call"
HELD, UNHELD, REPLAYED = "events, stream held back", "events", "graph replay"
WAITED = "host, device synchronised: the task uses streams that the current stream does not wait for"
OWN_CLOCK = "host clock, by the task itself"
EVENT_PARTS = ("record", "query", "synchronize", "elapsed_time")
GRAPH_PARTS = ("CUDAGraph", "graph", "Stream", "stream", "current_stream")


@dataclass
class HostTally:
    """What the host did in the counted blocks of one bound loop: seconds per call, and in how many blocks the device had to wait."""

    method: str
    host: list[float] = field(default_factory=list)
    late: int = 0


class EventTimer:
    """Device time between two events. The host queues a whole block while the stream is held, and late blocks are counted.

    Blocks are longer than on a host: calls must run back to back as in real use, with the cache as the previous call left it
    and steady power, or a kernel looks faster than it is.
    """

    block = 5e-3
    most = 200
    net = True
    rounds = 8
    settles = 0.0

    def __init__(self, api: Any, device: Any, meter: Meter | None, now: Callable[[], float] = clocks.perf_counter) -> None:
        self.api, self.device, self.meter, self.now = api, device, meter, now
        hold = _holder(api)
        self.held = hold is not None
        self.method = HELD if self.held else UNHELD
        self.hold: Callable[[float], None] = hold or (lambda seconds: None)
        self.tally = HostTally(self.method)
        self.waits = False
        """Whether the host's clock times all loops from now on: one of them uses streams that the current stream does not wait for."""
        self._left = LeftOver(api, now)
        self._counts = self._throttled = False
        self._throttles = self.delays = 0
        self._clocks: list[float] = []
        self._clock_read = self._reasons_read = -math.inf

    def bind(self, task: Task) -> Loop:
        """Return a loop that times a block between two events on the current stream; a task that times itself needs no events."""
        if task.times_itself:
            self.method = ""
            return HostTimer().bind(task)
        self._counts = False
        return self._loop(task, HostTally(self.method))

    def _loop(self, task: Task, tally: HostTally, calls: int = 1) -> Loop:
        """Return the timed loop of a task whose one call stands for `calls` calls; the blocks that count go to the tally."""
        fn, args, kwargs, prepare = task.fn, task.args, task.kwargs, task.prepare
        if fn is None:
            raise TypeError("a task needs fn or measure")
        start, end = _event(self.api), _event(self.api)
        expected, strays = SHORTEST_HOLD, 0

        def queue(n: int) -> int:
            nonlocal expected, strays
            if self.waits:
                return waited(n)
            self.hold(min(LONGEST_HOLD, 1.5 * expected + SHORTEST_HOLD))
            start.record()
            before = self.now()
            for _ in repeat(None, n):
                fn(*args, **kwargs)
            spent = self.now() - before
            late = start.query()
            end.record()
            end.synchronize()
            if self._counts:
                self._counts, self.tally = False, tally
                tally.late += bool(late)
                self.delays += bool(late) and self.held
                tally.host.append(spent / (n * calls))
            expected = spent
            elapsed: float = start.elapsed_time(end)
            more = self._left.after(elapsed * 1e-3)
            strays = strays + 1 if more else 0
            if strays == MOST_STRAYS:
                self.waits, self.method = True, WAITED
            return round(elapsed * 1e6 + more * 1e9)

        def waited(n: int) -> int:
            self.api.synchronize()
            before = self.now()
            for _ in repeat(None, n):
                fn(*args, **kwargs)
            spent = self.now() - before
            self.api.synchronize()
            if self._counts:
                self._counts, self.tally = False, tally
                tally.method = WAITED
                tally.host.append(spent / (n * calls))
            return round(1e9 * (self.now() - before))

        def prepared(n: int) -> int:
            total = 0
            for _ in repeat(None, n):
                if prepare is not None:
                    prepare()
                total += queue(1)
            return total

        return scoped(queue if prepare is None else prepared, task)

    def disturbances(self) -> int:
        """Return a count that grows while the device's clocks are forced down, so that blocks timed then are discarded.

        The device is read every `CLOCK_EVERY` seconds; between readings the last one holds. A sampler calls this before every block
        that counts, so the host time of the next block counts too; the only extra one is the first block after outputs were checked.
        """
        self._counts = True
        if self.meter is None:
            return 0
        before = self._throttled
        if self.now() - self._reasons_read >= CLOCK_EVERY:
            self._reasons_read = self.now()
            self._throttled = bool(self.meter.reasons() & HARMFUL)
        self._throttles += before or self._throttled
        return self._throttles

    def effort(self) -> float:
        """Wall time: the host waits for the device."""
        return self.now()

    def busy(self) -> int:
        """The host's CPU time says nothing about the device."""
        return 0

    def steady(self) -> bool:
        """Whether the device's clock rate has stopped rising; true at once where it cannot be read."""
        if self.meter is None:
            return True
        if self.now() - self._clock_read >= CLOCK_EVERY:
            self._clock_read = self.now()
            self._clocks.append(self.meter.sm_clock())
        recent = self._clocks[-STEADY_CLOCKS:]
        if any(math.isnan(clock) for clock in recent):
            return True
        return len(recent) == STEADY_CLOCKS and max(recent) - min(recent) <= 0.01 * max(recent)

    def report(self, device_seconds: float) -> dict[str, Any]:
        """Return host facts of the last sampling: launch cost, how often the device waited for the host, and what bounds the eager call."""
        seen = self.tally
        host = statistics.median(seen.host) if seen.host else math.nan
        share = seen.late / len(seen.host) if seen.host else 0.0
        bound = "host" if host > device_seconds or share > 0.5 else "device"
        return {"timer": seen.method, "host_time": host, "host_late": round(share, 4), "eager_bound_by": bound}


class GraphTimer(EventTimer):
    """Device time of replayed CUDA graphs: the kernels alone, without launches between them."""

    warmth = 2
    side: Any = None

    def bind(self, task: Task) -> Loop:
        """Return a loop that replays n calls, captured once per n; a task with a preparation cannot be replayed and is timed by events."""
        if task.prepare is not None or task.times_itself:
            return super().bind(task)
        self._counts = False
        replays: dict[int, Loop] = {}
        tally = HostTally(REPLAYED)

        def loop(n: int) -> int:
            if n not in replays:
                graph = capture(self.api, lambda: _call(task, n), self.warmth, self._stream())
                replays[n] = self._loop(Task(graph.replay), tally, n)
            return replays[n](1)

        return loop

    def _stream(self) -> Any:
        if self.side is None and hasattr(self.api, "Stream"):
            self.side = self.api.Stream()
        return self.side


class PairTimer(GraphTimer):
    """Timer for comparisons, with blocks so short that the device's clock rate is the same in all blocks of a round.

    Graphs are replayed if every arm can be captured; otherwise all arms are timed by held-back events. A block in which the
    device had to wait for the host does not measure the device, so it counts as a disturbance here.
    """

    block = 2.7e-4
    most = 64
    net = False

    def __init__(self, api: Any, device: Any, meter: Meter | None, arms: Iterable[Task]) -> None:
        super().__init__(api, device, meter)
        self.warmth, self._unreplayed = 0, self.method
        if not all(_captures(api, task) for task in arms):
            self.use_events()
        else:
            self.replays, self.method, self.rounds = True, REPLAYED, 6

    def use_events(self) -> None:
        """Stop replaying graphs, because an arm cannot be captured here or in another process."""
        self.replays, self.method, self.rounds = False, self._unreplayed, EventTimer.rounds

    def bind(self, task: Task) -> Loop:
        """Return the loop of an arm; arms have run before, so captures need no warm-up."""
        return super().bind(task) if self.replays else EventTimer.bind(self, task)

    def disturbances(self) -> int:
        """Return the count of throttled readings plus that of counted blocks in which the host was late."""
        return super().disturbances() + self.delays


def _call(task: Task, count: int) -> None:
    """Call the task `count` times and drop each result at once, so that the next call reuses its memory as eager calls do."""
    for _ in repeat(None, count):
        task()


def _captures(api: Any, task: Task) -> bool:
    if task.fn is None or task.prepare is not None:
        return False
    try:
        capture(api, task)
    except Unsupported:
        return False
    return True


def capture(api: Any, work: Callable[[], Any], warmth: int = 2, side: Any = None) -> Any:
    """Return a graph of the work, captured after the warm-up on a side stream that a first capture needs.

    Pass one `side` stream for repeated captures: libraries keep a workspace for every stream they have seen.
    """
    if missing := [name for name in GRAPH_PARTS if not hasattr(api, name)]:
        raise Unsupported("this device has no graphs to capture work in", why=f"its torch module has no {', '.join(missing)}")
    side = side or api.Stream()
    side.wait_stream(api.current_stream())
    try:
        with api.stream(side):
            for _ in range(warmth):
                work()
        api.current_stream().wait_stream(side)
        graph = api.CUDAGraph()
        with api.graph(graph, stream=side):
            work()
    except RuntimeError as error:
        _free_generator(api)
        raise Unsupported("this task cannot be captured in a CUDA graph", do=str(error).split("\n")[0]) from error
    return graph


def _free_generator(api: Any) -> None:
    """Release the device's random generator after a failed capture, which leaves it unable to draw numbers."""
    generators = getattr(api, "default_generators", ())
    if not generators:
        return
    generator = generators[api.current_device()]
    try:
        api.FloatTensor(1).uniform_()
    except RuntimeError:
        generator.graphsafe_set_state(generator.clone_state())


def _event(api: Any) -> Any:
    """Return an event that records times; raise Unsupported with the reason if the device has none."""
    kind = getattr(api, "Event", None)
    if kind is None:
        raise Unsupported("this device cannot be timed", why="its torch module has no Event")
    try:
        event = kind(enable_timing=True)
    except (TypeError, NotImplementedError) as error:
        raise Unsupported("this device cannot be timed", why=f"its events record no times: {error}") from error
    if missing := [name for name in EVENT_PARTS if not hasattr(event, name)]:
        raise Unsupported("this device cannot be timed", why=f"its events have no {', '.join(missing)}")
    return event


def _holder(api: Any) -> Callable[[float], None] | None:
    """Return a function that keeps the stream busy for a number of seconds without using memory; None if the device has none."""
    start, end = _event(api), _event(api)
    spin = getattr(api, "_sleep", None)
    probe = 2_000_000
    for _ in range(3):
        start.record()
        if spin is not None:
            spin(probe)
        end.record()
        end.synchronize()
    try:
        milliseconds: float = start.elapsed_time(end)
    except NotImplementedError as error:
        raise Unsupported("this device cannot be timed", why=f"its events record no times: {error}") from error
    if spin is None:
        return None
    rate = probe / (milliseconds * 1e-3)
    return lambda seconds: spin(int(seconds * rate))


def work_given(task: Task, timer: EventTimer, wall: float, probes: int = 5) -> float:
    """Return the seconds of device work in one call; the stream is held for longer than the call takes, so host time is not included."""
    start, end = _event(timer.api), _event(timer.api)

    def spent(call: Callable[[], Any]) -> float:
        timer.hold(1.5 * wall + SHORTEST_HOLD)
        start.record()
        call()
        end.record()
        end.synchronize()
        milliseconds: float = start.elapsed_time(end)
        return milliseconds * 1e-3

    return min(spent(task) for _ in range(probes)) - min(spent(lambda: None) for _ in range(probes))


def cold_times(task: Task, timer: EventTimer, count: int) -> list[float]:
    """Return the seconds of single calls; before each one the device's last-level cache is overwritten, untimed."""
    describe = getattr(timer.api, "get_device_properties", None)
    size = 0 if describe is None else FLUSH * int(getattr(describe(timer.device), "L2_cache_size", 0) or 0)
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


def net_cold_times(task: Task, timer: EventTimer, count: int) -> list[float]:
    """Return cold times minus those of an empty call timed the same way, as the hot time is net of its own empty call."""
    times = cold_times(task, timer, count)
    if not times:
        return []
    idle = replace(empty(task), prepare=task.prepare, scope=task.scope)
    overhead = float(np.quantile(cold_times(idle, timer, EMPTY_CALLS), 0.25))
    return [seconds - overhead for seconds in times]


def energy_per_call(task: Task, timer: EventTimer, seconds: float, per_call: float) -> tuple[float, float] | None:
    """Return joules per call and mean watts from the device's energy counter, for back-to-back calls between two counter updates.

    The counter is updated only every many milliseconds, so a window that begins or ends between updates would be off by one step.
    Calls keep the device busy while the counter is read. Where a call needs a preparation, the figures include it.
    """
    meter = timer.meter
    if meter is None or meter.energy() is None or task.fn is None:
        return None
    chunk = max(1, int(CHUNK / max(per_call, 1e-7)))
    done, ticks = _event(timer.api), list[tuple[float, float, int]]()
    _run(task, chunk)
    last, calls, begin = meter.energy(), 0, timer.now()
    while timer.now() - begin < seconds or (len(ticks) < 2 and timer.now() - begin < 4 * seconds):
        done.record()
        _run(task, chunk)
        done.synchronize()
        calls += chunk
        now = meter.energy()
        if now is not None and now != last:
            ticks.append((now, timer.now(), calls))
            last = now
    timer.api.synchronize()
    if len(ticks) < 2:
        return None
    (joules, at, first), (joules_end, at_end, final) = ticks[0], ticks[-1]
    return (joules_end - joules) / (final - first), (joules_end - joules) / (at_end - at)


def beside(task: Task, timer: EventTimer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Return host time, cold-cache time, graph-replay time of brief kernels and energy, as figures beside the hot device time.

    A task that times itself, such as a request, gets only the energy figures.
    """
    figures, facts = ({}, {"timer": OWN_CLOCK}) if task.times_itself else _beside_kernels(task, timer, seconds, settings)
    if settings.telemetry and timer.meter is None:
        facts["telemetry"] = UNREAD
    enough = settings.budget >= 2 * ENERGY_SECONDS
    energy = energy_per_call(task, timer, settings.budget / 2, seconds) if enough else None
    if not enough and timer.meter is not None:
        facts["energy"] = UNCOUNTED
    if energy:
        figures["energy"] = Figure(energy[0], "J", "lower")
        figures["power"] = Figure(energy[1], "W", "none")
        if task.flops:
            figures["efficiency"] = Figure(task.flops / energy[0], "FLOP/J", "higher")
        if task.prepare is not None:
            facts["energy"] = PREPARED
    return figures, facts


def _beside_kernels(task: Task, timer: EventTimer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
    facts = timer.report(seconds)
    figures = {"host_time": Figure(facts.pop("host_time"), "s", "lower", n=len(timer.tally.host))}
    cold = np.asarray(net_cold_times(task, timer, min(COLD_CALLS, max(8, int(settings.budget / max(seconds, 1e-6) / 4)))))
    if len(cold):
        figures["time_cold"] = time_figure(median_interval(cold))
    if seconds < BRIEF and task.prepare is None:
        try:
            replayed = sample(
                task, GraphTimer(timer.api, timer.device, timer.meter), replace(settings, budget=settings.budget / 4)
            ).interval
            figures["graph_time"] = time_figure(replayed)
        except Unsupported as error:
            facts["graph_time"] = error.what
    return figures, facts


def _run(task: Task, count: int) -> None:
    fn, prepare = task.fn, task.prepare
    assert fn is not None
    with task.scope() if task.scope else nullcontext():
        for _ in repeat(None, count):
            if prepare is not None:
                prepare()
            fn(*task.args, **task.kwargs)


def open_api(device: str) -> tuple[Any, Any]:
    """Return the torch module and the device of a kind; raise Unsupported with the reason if there is none here."""
    kind = "cuda" if device == "rocm" else device
    api = getattr(torch, kind, None)
    if device == "rocm" and torch.version.hip is None:
        raise Unsupported("this torch was built without ROCm", do="install a ROCm build of torch")
    if kind == "mps":
        if api is None or not torch.backends.mps.is_available():
            raise Unsupported("no MPS device: it needs macOS on Apple silicon")
        return api, torch.device("mps")
    if api is None or not hasattr(api, "is_available"):
        raise Unsupported(f"this torch has no device kind {device!r}")
    if not api.is_available():
        without = kind == "cuda" and torch.version.cuda is None and torch.version.hip is None
        reason = "torch was built without it" if without else "none is visible"
        look = "nvidia-smi shows what the driver sees, and " if kind == "cuda" else ""
        raise Unsupported(f"no {device} device here: {reason}", do=f"{look}-d cpu measures on the CPU")
    current = getattr(api, "current_device", None)
    return api, torch.device(kind) if current is None else torch.device(kind, current())
