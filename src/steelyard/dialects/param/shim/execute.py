"""What PARAM's execution modes mean, timed right: gradients cleared, outputs released, caches flushed, none of it in the timed region."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.marks import CLEAR_CACHE, NO_RANGE, Marks, Phase, Range, call_label, config_label, phase_label

MILLISECOND_NS, MEBIBYTE = 1e6, 1 << 20
FLUSH = 2
MOST_PENDING = 1000
SPARE = 0.5
REHEARSALS = 3
NO_GRADIENT = "the output has no gradient"
Metric = dict[str, dict[str, list[float]]]
Step = Callable[[], Any]


@dataclass(frozen=True)
class Station:
    """The device as the loops below see it; `api` is torch.cuda or what stands for it, None where calls end when they return."""

    kind: str
    api: Any = None
    flush: Step | None = None
    clock: Callable[[], int] = time.perf_counter_ns

    @property
    def on_cuda(self) -> bool:
        """Whether there are events and a memory allocator to ask."""
        return self.kind == "cuda"

    def before(self) -> None:
        """Get ready for one call: the cache as it shall be found, the memory mark reset, nothing pending."""
        if self.flush:
            self.flush()
        if self.on_cuda:
            self.api.reset_peak_memory_stats()
        self.api.synchronize()

    def timed(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, Any]:
        """Nanoseconds of one call until its work is done, and what it returned."""
        clock = self.clock
        if self.api is None:
            start = clock()
            out = fn(*args, **kwargs)
            return clock() - start, out
        sync = self.api.synchronize
        start = clock()
        out = fn(*args, **kwargs)
        sync()
        return clock() - start, out

    def peak(self) -> float:
        """The most memory held since `before`, in MiB; hosts are not asked."""
        return float(self.api.max_memory_allocated()) / MEBIBYTE if self.on_cuda else 0


def station(options: Options, marks: Marks) -> Station:
    """The station of a device that torch has and that is awake."""
    import torch

    where = torch.device(options.device)
    if where.type in ("cpu", "meta"):
        return Station(where.type)
    api = getattr(torch, where.type)
    if where.type != "cuda":
        return Station(where.type, api)
    if where.index is not None:
        torch.cuda.set_device(where)
    wanted = options.cuda_l2_cache == "off" and options.exec_mode == "discrete"
    return Station("cuda", api, _flush(api, where, marks) if wanted else None)


def _flush(api: Any, where: Any, marks: Marks) -> Step:
    """Write to more memory than the L2 cache of this very device holds."""
    import torch

    held = api.get_device_properties(where).L2_cache_size
    buffer, range = torch.empty(FLUSH * held, dtype=torch.uint8, device=where), marks.range(CLEAR_CACHE)

    def flush() -> None:
        with range:
            buffer.zero_()

    return flush


@dataclass
class Routine:
    """One config as it is called: forward, and where asked a step backward from what forward returned.

    `step` answers None when there is nothing to go back through. `pending` is how many forwards may wait for their backward.
    """

    forward: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    step: Callable[[Any], Step | None] | None = None
    clear: Step = lambda: None
    pending: int = MOST_PENDING

    def give_up_backward(self) -> None:
        """It was asked for and cannot be had; forward goes on alone."""
        self.step = None


class Gradient:
    """The default backward pass, as PARAM has it: from a gradient of ones, over a fresh graph each time."""

    def __init__(self, operator: Any = None) -> None:
        import torch

        self.tensor, self.ones, self.together = torch.Tensor, torch.ones_like, torch.autograd.backward
        self.own: Step | None = getattr(operator, "backward", None)
        self.create: Step | None = getattr(operator, "create_grad", None)
        self.seeds: list[Any] = []
        self.leaves: list[Any] | None = None

    def step(self, out: Any) -> Step | None:
        """What to call to go back from an output; all that is not the pass itself is done here, before."""
        if len(self.seeds) == 1 and isinstance(out, self.tensor) and out.shape == self.seeds[0].shape and not out.is_leaf:
            return partial(out.backward, self.seeds[0])
        roots = [item for item in ((out,) if isinstance(out, self.tensor) else tensors(out)) if not item.is_leaf]
        if self.leaves is None:
            self.leaves = leaves_below(roots)
        if self.own is not None:
            if self.create is not None:
                self.create()
            return self.own
        if not roots:
            return None
        if [seed.shape for seed in self.seeds] != [root.shape for root in roots]:
            self.seeds = [self.ones(root) for root in roots]
        if len(roots) == 1:
            return partial(roots[0].backward, self.seeds[0])
        return partial(self.together, roots, self.seeds)

    def clear(self) -> None:
        """Drop what the pass left, or the next one would add to it."""
        for leaf in self.leaves or ():
            leaf.grad = None


def tensors(value: Any) -> Iterator[Any]:
    """All tensors in an output, which may be nested."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)


def leaves_below(roots: Sequence[Any]) -> list[Any]:
    """The tensors that a backward pass from here gives a gradient to: inputs, weights, whatever the graph reaches."""
    queue, seen, found = [root.grad_fn for root in roots], set(), []
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        queue += [child for child, _ in node.next_functions]
    return found


def routine(call: Any, options: Options, station: Station) -> Routine:
    """A prepared call in the form that was asked for: as it is, compiled, or captured; both are done before anything is timed."""
    gradient = Gradient(call.operator)
    made = Routine(call.forward, call.args, call.kwargs)
    if options.backward:
        made.step, made.clear = gradient.step, gradient.clear
        made.pending = 1 if gradient.own else MOST_PENDING
    if options.pt2_model:
        made.forward = _compiled(call.forward)
        rehearse(made, 1)
    return captured(made, gradient, station) if options.cuda_graph and station.on_cuda else made


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled for these shapes alone: what earlier configs taught the compiler must not decide how this one runs."""
    import torch

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(forward, dynamic=False)
    return made


def rehearse(routine: Routine, count: int) -> None:
    """Untimed calls, for what only the first ones do."""
    for _ in range(count):
        out = routine.forward(*routine.args, **routine.kwargs)
        if routine.step is not None:
            if step := routine.step(out):
                step()
                routine.clear()
            else:
                routine.give_up_backward()
        out = step = None


def captured(plain: Routine, gradient: Gradient, station: Station) -> Routine:
    """The same as CUDA graphs, one per pass, captured on a side stream whether or not there are warm-up calls."""
    import torch

    api = station.api
    side = api.Stream()
    side.wait_stream(api.current_stream())
    with api.stream(side):
        rehearse(plain, REHEARSALS)
    api.current_stream().wait_stream(side)
    ahead = api.CUDAGraph()
    with api.graph(ahead):
        out = plain.forward(*plain.args, **plain.kwargs)

    def forward() -> Any:
        ahead.replay()
        return out

    made = Routine(forward)
    if plain.step is not None:
        step, back = plain.step(out), api.CUDAGraph()
        with api.graph(back, pool=ahead.pool()):
            if gradient.own is not None and step is not None:
                step()
            else:
                roots = [tensor for tensor in tensors(out) if not tensor.is_leaf]
                torch.autograd.grad(roots, gradient.leaves or (), gradient.seeds, retain_graph=True, allow_unused=True)
        made.step, made.pending = lambda out: back.replay, plain.pending
    return made


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


def discrete(routine: Routine, station: Station, count: int, ranges: Ranges, per_call: bool = True) -> Taken:
    """One number per call and pass; on a device from idle to idle."""
    timed, peak, waits = station.timed, station.peak, station.api is not None
    forward, args, kwargs = routine.forward, routine.args, routine.kwargs
    ahead: Range = ranges.forward if per_call else NO_RANGE
    back: Range = ranges.backward if per_call else NO_RANGE
    taken = Taken()
    with ranges.whole:
        for _ in repeat(None, count):
            if waits:
                station.before()
            with ahead:
                spent, out = timed(forward, args, kwargs)
            taken.forward.append(spent / MILLISECOND_NS)
            if waits:
                taken.forward_memory.append(peak())
            if routine.step is not None:
                if (step := routine.step(out)) is None:
                    routine.give_up_backward()
                else:
                    if waits:
                        station.before()
                    with back:
                        spent, _ = timed(step, (), {})
                    taken.backward.append(spent / MILLISECOND_NS)
                    if waits:
                        taken.backward_memory.append(peak())
                    routine.clear()
                step = None
            out = None
    if not waits:
        taken.forward_memory.extend(repeat(0, len(taken.forward)))
        taken.backward_memory.extend(repeat(0, len(taken.backward)))
    return taken


def host_loop(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """Both continuous modes on a host, where there is nothing to keep running: discrete calls without labels and memory."""
    taken = discrete(routine, station, count, ranges, per_call=False)
    return Taken(taken.forward, [], taken.backward, [])


def continuous(routine: Routine, station: Station, count: int, ranges: Ranges) -> Taken:
    """One number per pass: calls follow each other without a pause, and the whole time is divided by their count.

    Backward is timed in a loop of its own over forwards that were run before it, as many as memory holds at once, so that
    it is measured and not the difference of two means. Dropping a gradient costs no device time and stays in that loop,
    since adding to the last one would.
    """
    forward, args, kwargs = routine.forward, routine.args, routine.kwargs

    def together() -> None:
        for _ in repeat(None, count):
            forward(*args, **kwargs)

    station.before()
    with ranges.forward:
        spent, _ = station.timed(together, (), {})
    taken = Taken([spent / MILLISECOND_NS / count], [station.peak()])
    if routine.step is None:
        return taken
    total, left = 0, count
    room = 1
    station.before()
    highest = 0.0
    while left:
        steps, held = deque[Step](), station.api.memory_allocated()
        while len(steps) < min(left, room):
            if (step := routine.step(forward(*args, **kwargs))) is None:
                routine.give_up_backward()
                return taken
            steps.append(step)
            if left == count and len(steps) == 1:
                room = room_for(station.api, station.api.memory_allocated() - held, routine.pending)
        left -= len(steps)
        step = None

        def back(steps: deque[Step] = steps) -> None:
            while steps:
                steps.popleft()()
                routine.clear()

        station.api.synchronize()
        with ranges.backward:
            spent, _ = station.timed(back, (), {})
        total += spent
        highest = max(highest, station.peak())
    taken.backward.append(total / MILLISECOND_NS / count)
    taken.backward_memory.append(highest)
    return taken


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
