"""Times a fixed number of calls; gradients are cleared, outputs released and caches flushed between them, outside of the timed region.

One implementation for host and device. What other systems call discrete, continuous and event timing are three loops over the same
task; a backend provides the stopwatch of its device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal, Protocol

from steelyard import clocks
from steelyard.measuring import marks
from steelyard.model.protocol import Fixed
from steelyard.model.task import Backward, Step, Task

Range = AbstractContextManager[Any]
Phase = Literal["warmup", "measure"]
NO_RANGE: Range = nullcontext()
PROBES = 5
"""How many calls are timed to find out how many fill a given time."""
SPARE = 0.5
"""Share of the free memory that outputs waiting for their backward pass may take."""
NO_GRADIENT = "the output has no gradient, or no derivative is written for the operator"


class Stopwatch:
    """Times single calls; this one on a host, where a call ends when it returns. A backend makes the one for its device.

    `asynchronous` means that work goes on after a call returns; `events` that the device can record times on its own queue.
    """

    asynchronous = False
    events = False
    continuous = True
    """Whether calls may follow each other without a pause; if not, there are no continuous times."""

    def before(self) -> None:
        """Prepare one call: flush the cache if requested, reset the memory peak, and wait for pending work."""

    def cool(self) -> None:
        """Queue the flush of the device's cache, if requested."""

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return the nanoseconds of one call until its work is done, and its result."""
        clock, kwargs = clocks.perf_counter_ns, kwargs or {}
        start = clock()
        out = fn(*args, **kwargs)
        return clock() - start, out

    def peak(self) -> int:
        """Return the most bytes held since `before`."""
        return 0

    def sync(self) -> None:
        """Wait until nothing is pending."""

    def hand_over(self) -> None:
        """Submit queued work to the device if that does not happen by itself, without waiting for it."""

    def finish(self, out: Any) -> None:
        """Wait until the work behind an answer, and all before it, is done."""
        self.sync()

    def await_inputs(self, inputs: Any) -> None:
        """Wait until inputs that were just made are computed, if `before` does not wait for them."""

    def count_anew(self) -> None:
        """Reset the counts that `counts` returns."""

    def counts(self) -> dict[str, Any]:
        """Return the framework's counts since `count_anew`: compiled graphs, time spent in its runtime, operators that ran elsewhere."""
        return {}

    def report(self) -> str:
        """Return the framework's own report of what it counted."""
        return ""

    def held(self) -> int:
        """Return the bytes that are held now."""
        return 0

    def free(self) -> int:
        """Return the bytes that could be allocated."""
        return 0

    def event_pairs(self, count: int) -> Sequence[tuple[Any, Any]]:
        """Return a start and an end event for the device's queue, for each of so many calls."""
        return ()


class Labels(Protocol):
    """Makes the ranges that traces and tools show."""

    def range(self, label: str) -> Range: ...
    def profiler_range(self, label: str) -> Range: ...
    def tool_range(self, label: str) -> Range: ...


class NoLabels:
    """Labels whose ranges do nothing."""

    def range(self, label: str) -> Range:
        """Return a range of this name, which can be entered many times."""
        return NO_RANGE

    def profiler_range(self, label: str) -> Range:
        """Return a range that only traces show."""
        return NO_RANGE

    def tool_range(self, label: str) -> Range:
        """Return a range that only external tools see."""
        return NO_RANGE


@dataclass(frozen=True)
class Ranges:
    """The ranges of one phase, made before it begins."""

    forward: Range = NO_RANGE
    backward: Range = NO_RANGE
    whole: Range = NO_RANGE


@dataclass(frozen=True)
class PassSeries:
    """The values of one pass in one phase; times in nanoseconds, or in milliseconds if they come from the device's events.

    `host` is the part of each time that passed before the calls had returned, where that is known.
    """

    time: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    unit: str = "ns"
    host: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Taken:
    """The result of one phase; `no_gradient` says that backward was requested and is not possible, `counts` is what each repeat counted."""

    forward: PassSeries = field(default_factory=PassSeries)
    backward: PassSeries = field(default_factory=PassSeries)
    no_gradient: bool = False
    counts: list[dict[str, Any]] = field(default_factory=list)


Loop = Callable[[Task, Backward | None, Stopwatch, int, Ranges], Taken]


def discrete(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return one time per call and pass; on a device from idle to idle."""
    if task.times_itself:
        return _by_itself(task, watch, count, ranges)
    if watch.asynchronous:
        return _on_device(task, back, watch, count, ranges)
    with ranges.whole:
        forward, backward, lost = _on_host(task, back, count, ranges)
    return Taken(PassSeries(forward, [0] * len(forward)), PassSeries(backward, [0] * len(backward)), lost)


def _by_itself(task: Task, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return the times reported by a task that times itself."""
    series = PassSeries()
    with ranges.whole:
        for _ in repeat(None, count):
            watch.before()
            with ranges.forward:
                series.time.append(round(task.timed_run().seconds * 1e9))
            series.memory.append(watch.peak())
    return Taken(series)


def _on_host(task: Task, back: Backward | None, count: int, ranges: Ranges) -> tuple[list[float], list[float], bool]:
    """Return the nanoseconds of each forward and each backward pass, which end when they return."""
    forward, args, kwargs, prepare, clock = task.fn, task.args, task.kwargs, task.prepare, clocks.perf_counter_ns
    assert forward is not None
    ahead, behind = ranges.forward, ranges.backward
    forwards, backwards = list[float](), list[float]()
    lost = False
    for _ in repeat(None, count):
        if prepare is not None:
            prepare()
        with ahead:
            start = clock()
            out = forward(*args, **kwargs)
            end = clock()
        forwards.append(end - start)
        if back is not None:
            if (step := back.step(out)) is None:
                back, lost = None, True
            else:
                with behind:
                    start = clock()
                    step()
                    end = clock()
                backwards.append(end - start)
                back.clear()
            step = None
        out = None
    return forwards, backwards, lost


def _on_device(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return one time per call and pass where work goes on after a call returns: nothing is pending before or after each."""
    assert task.fn is not None
    forward, backward, lost = PassSeries(), PassSeries(), False
    with ranges.whole:
        for _ in repeat(None, count):
            if task.prepare is not None:
                task.prepare()
            watch.before()
            with ranges.forward:
                spent, out = watch.timed(task.fn, task.args, task.kwargs)
            forward.time.append(spent)
            forward.memory.append(watch.peak())
            if back is not None:
                if (step := back.step(out)) is None:
                    back, lost = None, True
                else:
                    watch.before()
                    with ranges.backward:
                        spent, _ = watch.timed(step)
                    backward.time.append(spent)
                    backward.memory.append(watch.peak())
                    back.clear()
                step = None
            out = None
    return Taken(forward, backward, lost)


def host_loop(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Both continuous clocks on a host, where no queue must be kept busy: discrete calls without labels and memory."""
    with ranges.whole:
        forward, backward, lost = _on_host(task, back, count, Ranges())
    return Taken(PassSeries(forward), PassSeries(backward), lost)


def continuous(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return one time per pass: calls follow each other without a pause, and the total time is divided by their count.

    Backward is timed in its own loop over forwards that ran before it, as many as fit in memory at once, so that it is measured
    directly and not as the difference of two means; its memory is that of one call, measured before. Dropping a gradient costs no
    device time and stays in that loop, since adding to the last gradient would cost time.
    """
    forward, args, kwargs = task.fn, task.args, task.kwargs
    assert forward is not None

    def ahead() -> None:
        for _ in repeat(None, count):
            forward(*args, **kwargs)

    watch.before()
    with ranges.forward:
        spent, _ = watch.timed(ahead)
    taken = PassSeries([spent / count], [watch.peak()])
    if back is None:
        return Taken(taken)

    def behind(steps: deque[Step]) -> None:
        while steps:
            steps.popleft()()
            back.clear()

    watch.before()
    before = watch.held()
    first = _waiting(task, back, 1)
    if not first:
        return Taken(taken, no_gradient=True)
    each = watch.held() - before
    room = back.pending if each <= 0 else max(1, min(back.pending, int(SPARE * watch.free() / each)))
    behind(first)
    memory, total, left = watch.peak(), 0, count
    while left:
        steps = _waiting(task, back, min(left, room))
        left -= min(left, room)
        watch.sync()
        with ranges.backward:
            spent, _ = watch.timed(behind, (steps,))
        total += spent
    return Taken(taken, PassSeries([total / count], [memory]))


def _waiting(task: Task, back: Backward, count: int) -> deque[Step]:
    """Run so many forward passes, and return the backward step of each, still to be run."""
    assert task.fn is not None
    made = (back.step(task.fn(*task.args, **task.kwargs)) for _ in range(count))
    return deque(step for step in made if step is not None)


def events(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return one time per call, from a pair of events on the device's queue; the host waits once, at the end."""
    forward, args, kwargs = task.fn, task.args, task.kwargs
    assert forward is not None
    pairs = watch.event_pairs(count)
    watch.before()
    with ranges.forward:
        for start, end in pairs:
            watch.cool()
            start.record()
            out = forward(*args, **kwargs)
            end.record()
            out = None
        watch.sync()
    taken = PassSeries([start.elapsed_time(end) for start, end in pairs], [watch.peak()], "ms")
    if back is None:
        return Taken(taken)
    watch.before()
    with ranges.whole:
        for start, end in pairs:
            out = forward(*args, **kwargs)
            if (step := back.step(out)) is None:
                return Taken(taken, no_gradient=True)
            start.record()
            step()
            end.record()
            back.clear()
            out = step = None
        watch.sync()
    return Taken(taken, PassSeries([start.elapsed_time(end) for start, end in pairs], [watch.peak()], "ms"))


Renew = Callable[[], tuple[Sequence[Any], Mapping[str, Any]]]
BEFORE, DURING = 25_000_000, 100_000_000
"""Nanoseconds of calls that the clock `fastest` ignores as warm-up, and of the calls after them, of which the shortest counts."""


def repeats(task: Task, fixed: Fixed, watch: Stopwatch, count: int, renew: Renew | None) -> Taken:
    """Time repeats of several calls each, with inputs that were made before: one time per repeat, and the framework's counts in it.

    The task's preparation before a call is part of the time, since the calls follow each other.
    """
    series, counts = PassSeries(), list[dict[str, Any]]()
    for _ in repeat(None, count):
        inputs = [renew() if renew else (task.args, task.kwargs) for _ in range(fixed.calls)]
        watch.before()
        watch.await_inputs(inputs)
        watch.count_anew()
        spent, host = (_shortest if fixed.clock == "fastest" else _one_after_another)(task, watch, inputs)
        series.time.append(spent)
        if host is not None:
            series.host.append(host)
        if fixed.counters != "none":
            counts.append(watch.counts() | ({"report": watch.report()} if fixed.counters == "reports" else {}))
    return Taken(series, counts=counts)


def _one_after_another(task: Task, watch: Stopwatch, inputs: Sequence[Any]) -> tuple[int, int | None]:
    """Return the nanoseconds of all calls until the last is done, and the part that passed inside of the calls."""
    fn, prepare, clock, host, out = task.fn, task.prepare, clocks.perf_counter_ns, 0, None
    assert fn is not None
    start = clock()
    for args, kwargs in inputs:
        if prepare is not None:
            prepare()
        called = clock()
        out = fn(*args, **kwargs)
        host += clock() - called
        watch.hand_over()
    watch.finish(out)
    return clock() - start, host


def _shortest(task: Task, watch: Stopwatch, inputs: Sequence[Any]) -> tuple[int, int | None]:
    """Return the sum over all inputs of the shortest of many calls."""
    assert task.fn is not None
    clock, total = clocks.perf_counter_ns, 0
    for args, kwargs in inputs:
        times = list[int]()
        begun = clock()
        while not times or clock() - begun < BEFORE + DURING:
            if task.prepare is not None:
                task.prepare()
            start = clock()
            watch.finish(task.fn(*args, **kwargs))
            end = clock()
            if end - begun >= BEFORE or not times:
                times.append(end - start)
        total += min(times)
    return total, None


def nothing(task: Task, back: Backward | None, watch: Stopwatch, count: int, ranges: Ranges) -> Taken:
    """Return no times, for devices on which calls cannot follow each other without a pause."""
    return Taken()


def loop_of(clock: str, watch: Stopwatch) -> Loop:
    """Return the timing loop of a clock on a device."""
    if clock == "discrete":
        return discrete
    if not watch.asynchronous:
        return host_loop if watch.continuous else nothing
    if not watch.events:
        return nothing
    return continuous if clock == "continuous" else events


@dataclass(frozen=True)
class Sampled:
    """The result of a task: phases by name, and whether its backward pass was possible, if requested."""

    phases: Mapping[str, Taken]
    backward: bool = False


def take(
    task: Task,
    fixed: Fixed,
    watch: Stopwatch,
    labels: Labels | None = None,
    name: str = "",
    renew: Renew | None = None,
    position: int | None = None,
) -> Sampled:
    """Rehearse, warm up and measure one task; `name` is its name in labels, and `renew` makes inputs for one call.

    `position` is its place in a batch under an external tool, and part of the marks around its measured calls.
    """
    labels = labels or NoLabels()
    if fixed.grouped:
        phased = {"warmup": fixed.warmup, "measure": fixed.repeats}
        return Sampled({phase: repeats(task, fixed, watch, count, renew) for phase, count in phased.items()})
    back = task.back if fixed.backward else None
    for _ in range(fixed.rehearse):
        back = _rehearse(task, back)
    loop, phases = loop_of(fixed.clock, watch), dict[str, Taken]()
    fixed = counted(fixed, lambda count: loop(task, None, watch, count, Ranges()))
    counts: tuple[tuple[Phase, int], ...] = (("warmup", fixed.warmup), ("measure", fixed.repeats))
    with labels.range(f"[{fixed.ranges}|{name}]"):
        for phase, count in counts:
            with labels.tool_range(f"[{fixed.ranges}|{phase}]"):
                phases[phase] = loop(task, back, watch, count, _ranges(labels, fixed, name, phase, position)) if count else Taken()
            back = None if phases[phase].no_gradient else back
    return Sampled(phases, back is not None)


def counted(fixed: Fixed, probe: Callable[[int], Any], now: Callable[[], float] = clocks.perf_counter) -> Fixed:
    """Return the protocol with its seconds converted to numbers of calls, at least 1, from the time that a few calls take in all."""
    if fixed.warmup_time is None and fixed.repeat_time is None:
        return fixed
    start = now()
    probe(PROBES)
    each = max((now() - start) / PROBES, 1e-9)
    warmup, repeats = (None if span is None else max(1, int(span / each)) for span in (fixed.warmup_time, fixed.repeat_time))
    return replace(fixed, warmup=fixed.warmup if warmup is None else warmup, repeats=fixed.repeats if repeats is None else repeats)


def _rehearse(task: Task, back: Backward | None) -> Backward | None:
    """Run one call that is not timed, for what only first calls do; return the backward pass, or None if it is not possible."""
    if task.times_itself:
        task.timed_run()
        return None
    assert task.fn is not None
    if task.prepare is not None:
        task.prepare()
    out = task.fn(*task.args, **task.kwargs)
    if back is None:
        return None
    if (step := back.step(out)) is None:
        return None
    step()
    back.clear()
    return back


def _ranges(labels: Labels, fixed: Fixed, name: str, phase: Phase, position: int | None) -> Ranges:
    """Return the ranges of a phase; if each call has its own range, the one around all calls is for traces only."""
    stem = f"{fixed.ranges}|{name}|{phase}"
    whole = f"[{stem}|{'forward_backward' if fixed.backward else 'forward'}]"
    ahead, back = (labels.range(f"[{stem}|{part}]") for part in ("forward", "backward"))
    if phase == "measure" and position is not None:
        ahead = marks.Nested(*map(labels.tool_range, marks.around(fixed.ranges, position, "forward")), ahead)
        back = marks.Nested(*map(labels.tool_range, marks.around(fixed.ranges, position, "backward")), back)
    return Ranges(ahead, back, labels.profiler_range(whole) if fixed.clock == "discrete" else labels.range(whole))
