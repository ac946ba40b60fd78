"""What PARAM's execution modes mean, timed right: gradients cleared, outputs released, caches flushed, none of it in the timed region."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.marks import NO_RANGE, Marks, Phase, Range, call_label, config_label, phase_label
from steelyard.dialects.param.shim.routine import Routine, Step, routine
from steelyard.dialects.param.shim.station import Station

MILLISECOND_NS = 1e6
SPARE = 0.5
NO_GRADIENT = "the output has no gradient, or no derivative is written for the operator"
Metric = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Taken:
    """What one phase gave, in milliseconds and MiB."""

    forward: list[float] = field(default_factory=list)
    forward_memory: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    backward_memory: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Ranges:
    """The labels of one phase of one config, made before it begins."""

    forward: Range = NO_RANGE
    backward: Range = NO_RANGE
    whole: Range = NO_RANGE


def discrete(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """One number per call and pass; on a device from idle to idle."""
    if station.api is not None:
        return on_device(routine, station, count, ranges)
    with ranges.whole:
        forward, backward = on_host(routine, station.clock, count, ranges)
    return Taken(forward, [0] * len(forward), backward, [0] * len(backward))


def on_host(routine: Routine, clock: Callable[[], int], count: int, ranges: Ranges) -> tuple[list[float], list[float]]:
    """Milliseconds of each forward and each backward pass, which end when they return."""
    forward, args, kwargs = routine.forward, routine.args, routine.kwargs
    ahead, back = ranges.forward, ranges.backward
    forwards, backwards = list[float](), list[float]()
    for _ in repeat(None, count):
        with ahead:
            start = clock()
            out = forward(*args, **kwargs)
            end = clock()
        forwards.append((end - start) / MILLISECOND_NS)
        if routine.step is not None:
            if (step := routine.step(out)) is None:
                routine.give_up_backward()
            else:
                with back:
                    start = clock()
                    step()
                    end = clock()
                backwards.append((end - start) / MILLISECOND_NS)
                routine.clear()
            step = None
        out = None
    return forwards, backwards


def on_device(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """The same where work goes on after a call returns: nothing is pending before, and nothing after."""
    taken = Taken()
    with ranges.whole:
        for _ in repeat(None, count):
            station.before()
            with ranges.forward:
                spent, out = station.timed(routine.forward, routine.args, routine.kwargs)
            taken.forward.append(spent / MILLISECOND_NS)
            taken.forward_memory.append(station.peak())
            if routine.step is not None:
                if (step := routine.step(out)) is None:
                    routine.give_up_backward()
                else:
                    station.before()
                    with ranges.backward:
                        spent, _ = station.timed(step, (), {})
                    taken.backward.append(spent / MILLISECOND_NS)
                    taken.backward_memory.append(station.peak())
                    routine.clear()
                step = None
            out = None
    return taken


def host_loop(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """Both continuous modes on a host, where there is nothing to keep running: discrete calls without labels and memory."""
    with ranges.whole:
        forward, backward = on_host(routine, station.clock, count, Ranges())
    return Taken(forward, [], backward, [])


def continuous(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """One number per pass: calls follow each other without a pause, and the whole time is divided by their count.

    Backward is timed in a loop of its own over forwards that were run before it, as many as memory holds at once, so that
    it is measured and not the difference of two means; its memory is that of one call, taken before. Dropping a gradient
    costs no device time and stays in that loop, since adding to the last one would.
    """
    forward, args, kwargs = routine.forward, routine.args, routine.kwargs

    def ahead() -> None:
        for _ in repeat(None, count):
            forward(*args, **kwargs)

    def back(steps: deque[Step]) -> None:
        while steps:
            steps.popleft()()
            routine.clear()

    station.before()
    with ranges.forward:
        spent, _ = station.timed(ahead, (), {})
    taken = Taken([spent / MILLISECOND_NS / count], [station.peak()])
    if routine.step is None:
        return taken
    station.before()
    held = station.api.memory_allocated()
    first = waiting(routine, 1)
    if not first:
        routine.give_up_backward()
        return taken
    room = room_for(station.api, station.api.memory_allocated() - held, routine.pending)
    back(first)
    taken.backward_memory.append(station.peak())
    total, left = 0, count
    while left:
        steps = waiting(routine, min(left, room))
        left -= min(left, room)
        station.api.synchronize()
        with ranges.backward:
            spent, _ = station.timed(back, (steps,), {})
        total += spent
    taken.backward.append(total / MILLISECOND_NS / count)
    return taken


def waiting(routine: Routine, count: int) -> deque[Step]:
    """So many forwards, and for each the step back from it that is still to be made."""
    assert routine.step is not None
    made = (routine.step(routine.call()) for _ in range(count))
    return deque(step for step in made if step is not None)


def room_for(api: Any, each: int, most: int) -> int:
    """How many outputs with their graphs may wait: half of the memory that is free, here or with the driver."""
    free = api.mem_get_info()[0] + api.memory_reserved() - api.memory_allocated()
    return most if each <= 0 else max(1, min(most, int(SPARE * free / each)))


def continuous_events(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """One number per call, from a pair of events on the stream; the host waits once, at the end."""
    forward, args, kwargs, api = routine.forward, routine.args, routine.kwargs, station.api
    pairs = [(api.Event(enable_timing=True), api.Event(enable_timing=True)) for _ in range(count)]
    station.before()
    with ranges.forward:
        for start, end in pairs:
            start.record()
            out = forward(*args, **kwargs)
            end.record()
            out = None
        api.synchronize()
    taken = Taken([start.elapsed_time(end) for start, end in pairs], [station.peak()])
    if routine.step is None:
        return taken
    station.before()
    with ranges.whole:
        for start, end in pairs:
            out = forward(*args, **kwargs)
            if (step := routine.step(out)) is None:
                routine.give_up_backward()
                return taken
            start.record()
            step()
            end.record()
            routine.clear()
            out = step = None
        api.synchronize()
    taken.backward.extend(start.elapsed_time(end) for start, end in pairs)
    taken.backward_memory.append(station.peak())
    return taken


def nothing(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """PARAM knows continuous modes on hosts and CUDA alone, and records empty lists elsewhere."""
    return Taken()


def loop_of(mode: str, station: Station) -> Callable[[Routine, Station, int, Ranges], Taken]:
    """The loop of an execution mode on a device."""
    if mode == "discrete":
        return discrete
    if station.kind == "cpu":
        return host_loop
    if not station.on_cuda:
        return nothing
    return continuous if mode == "continuous" else continuous_events


@dataclass(frozen=True)
class Seat:
    """What an executor is given beside the call: the names for its labels, the options, the device."""

    op: str
    id: str
    options: Options
    station: Station
    marks: Marks = field(default_factory=Marks)

    def ranges(self, phase: Phase) -> Ranges:
        """Labels of a phase; one around all calls belongs to traces alone where each call has its own."""
        both = "forward_backward" if self.options.backward else "forward"
        whole = call_label(self.op, self.id, phase, both)
        apart = self.options.exec_mode == "discrete"
        return Ranges(
            self.marks.range(call_label(self.op, self.id, phase, "forward")),
            self.marks.range(call_label(self.op, self.id, phase, "backward")),
            self.marks.profiler_range(whole) if apart else self.marks.range(whole),
        )


def execute(call: Any, seat: Seat) -> Metric:
    """Warm up and measure one prepared call; a pass that has no meaning for it is absent from the answer."""
    made = routine(call, seat.options, seat.station)
    loop, phases = loop_of(seat.options.exec_mode, seat.station), {}
    counts: tuple[tuple[Phase, int], ...] = (("warmup", seat.options.warmup), ("measure", seat.options.iteration))
    with seat.marks.range(config_label(seat.op, seat.id)):
        for phase, count in counts:
            with seat.marks.tool_range(phase_label(phase)):
                phases[phase] = loop(made, seat.station, count, seat.ranges(phase)) if count else Taken()
    metric: Metric = {"forward": {}}
    for phase, taken in phases.items():
        metric["forward"] |= {f"{phase}.time": taken.forward, f"{phase}.gpu.memory": taken.forward_memory}
    if made.step is not None:
        metric["backward"] = {}
        for phase, taken in phases.items():
            metric["backward"] |= {f"{phase}.time": taken.backward, f"{phase}.gpu.memory": taken.backward_memory}
    return metric


Executor = Callable[[Any, Seat], Mapping[str, Any]]
"""The seam: whoever runs configs in another way writes one of these."""
