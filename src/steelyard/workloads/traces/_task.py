"""A replay as a task: how it is timed on a host and on a device, the time of each operator, and what is reported after timing."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from steelyard.model.parts import OPERATOR
from steelyard.model.record import Arrays
from steelyard.model.task import Findings, Reading, Task
from steelyard.workloads.traces import _memory, _play
from steelyard.workloads.traces._program import ReplayProgram

if TYPE_CHECKING:
    from steelyard.traces.nodes import TraceNode
    from steelyard.workloads.traces._coverage import NodeCost
    from steelyard.workloads.traces.replay import PreparedReplay

KEPT, MOST_KINDS, MOST_ROWS = 64, 64, 500
"""Number of iterations whose times of single calls are kept, of kinds of operators with their own figure, and of rows in a record."""
DEVICE_ROUNDS = 10
MOST_CALLS = 20_000
"""The most calls for which a timeline is kept."""
SLEEP_CYCLES = 2_000_000
CALL_BYTES = 20_000
"""Bytes that can be moved in about the time of a call without any work."""
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class CallMoments:
    """Times of the clock in nanoseconds, before the first step and after each."""

    moments: Sequence[int]


def free_memory(device: str) -> int | None:
    """Return the free bytes on a device; None for a host, whose limit is checked elsewhere."""
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else None


def as_recorded(replay: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replay's function with the reason why it cannot be compiled."""
    vars(replay)["not_compiled"] = "a replay makes the recorded calls one by one: there is no graph to compile"
    return replay


@dataclass
class ReplayTask:
    """One build of a replay; it keeps the times of single calls during the measurement."""

    made: PreparedReplay
    steps: _play.ReplaySteps
    tensors: tuple[Any, ...]
    device: str
    memory: bool = False
    """Whether the memory use of each operator is reported."""
    kept: collections.deque[Ints] = field(default_factory=lambda: collections.deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        self.nodes = [call.node for call in self.made.fitted.program.calls]
        self.call_of = np.asarray(self.steps.calls, np.int64)
        self.answer = {"coverage": self.made.coverage.least(), "unlike": float(len(self.made.fitted.strange))}

    def task(self) -> Task:
        """Return the task: on a host it reports the time of each operator, on a device calls are queued and the device is timed."""
        prepare = self._restoring()
        costs = self.made.coverage.costs
        flops, moved = (sum(getattr(costs[node.id], kind) for node in self.nodes) or None for kind in ("flops", "bytes"))
        if self.device == "cpu":
            return Task(
                self._timed(), self.tensors, flops=flops, bytes=moved, prepare=prepare, reading=self._reading(), findings=self.findings
            )  # fmt: skip
        run, answer = self.steps.run(), self.answer

        @as_recorded
        def replay(*tensors: Any) -> dict[str, float]:
            run(*tensors)
            return answer

        return Task(replay, self.tensors, flops=flops, bytes=moved, prepare=prepare, findings=self.findings)

    def on_ranks(self, coverage: float) -> Task:
        """Return the task for one of several ranks: it keeps the times of calls itself, and its answer is what is wrong with it.

        Nothing is called before all ranks are ready to call it.
        """
        run, timed, on_host = self.steps.run(), self.steps.timed(), self.device == "cpu"
        wrong = {
            "too_little_replayed": torch.tensor([float(self.answer["coverage"] < coverage)]),
            "results_unlike_recorded": torch.tensor([self.answer["unlike"]]),
        }  # fmt: skip

        @as_recorded
        def replay(*tensors: Any) -> dict[str, Any]:
            if on_host:
                moments = np.asarray(timed(*tensors), np.int64)
                self.kept.append(moments[1:] - moments[:-1])
            else:
                run(*tensors)
            return wrong

        right = {key: torch.zeros(1) for key in wrong}
        return Task(replay, self.tensors, prepare=self._restoring(), findings=self.findings, reference=lambda: right)

    def _timed(self) -> Callable[..., dict[str, Any]]:
        timed, answer = self.steps.timed(), self.answer

        @as_recorded
        def replay(*tensors: Any) -> dict[str, Any]:
            return {**answer, "stamps": CallMoments(timed(*tensors))}

        return replay

    def _reading(self) -> Callable[[dict[str, Any]], Reading]:
        """Return a function that reads the whole time, and the time of each kind of operator that has its own figure."""
        known = main_kinds(self.nodes, self.made.coverage.costs)
        place = {name: number for number, name in enumerate(known)}
        group = np.asarray([place.get(node.name, len(known)) for node in self.nodes], np.int64)[self.call_of]
        labels = [f"{OPERATOR}{name}" for name in known]

        def read(output: dict[str, Any]) -> Reading:
            moments = np.asarray(output["stamps"].moments, np.int64)
            took = np.diff(moments)
            self.kept.append(took)
            sums = np.bincount(group, took, minlength=len(labels))
            return Reading(float(moments[-1] - moments[0]) * 1e-9, parts=dict(zip(labels, map(float, sums), strict=False)))

        return read

    def _restoring(self) -> Callable[[], None] | None:
        """Return a function that restores integers that some calls change and others read: an index that grows would leave its range."""
        given = dict(zip(self.steps.given, self.tensors, strict=True))
        changed = [given[slot] for slot in changing_integers(self.made.fitted.program, self.made.fitted.found) if slot in given]
        if not changed:
            return None
        before = [tensor.clone() for tensor in changed]

        def restore() -> None:
            for tensor, was in zip(changed, before, strict=True):
                tensor.copy_(was)

        return restore

    def findings(self) -> Findings:
        """Return the time of each operator beside its recorded time, as rows and as raw series for a timeline."""
        if self.device != "cpu":
            self._on_device()
        if not self.kept:
            return Findings()
        per_step = np.median(np.asarray(self.kept), axis=0)
        per_call = np.bincount(self.call_of, per_step, minlength=len(self.nodes)) * 1e-9
        facts: dict[str, Any] = {
            "replay_operators": operator_rows(self.nodes, per_call),
            "replay_names": sorted({node.name for node in self.nodes}),
        }
        figures = {"recorded_time": recorded} if (recorded := recorded_time(self.nodes)) else {}
        if self.memory:
            if restore := self._restoring():
                restore()
            facts["replay_memory"] = _memory.memory_rows(self.steps, self.nodes, self.tensors, self.device)
        return Findings({**facts, **figures}, timeline(self.nodes, per_call))

    def _on_device(self) -> None:
        """Time each call by events around it; the device sleeps first, so that calls wait in its queue and no gap is timed."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(self.steps.steps) + 1)]
        waiting = iter(events)
        replay = self.steps.noted(lambda: next(waiting).record())
        with torch.no_grad():
            for _ in range(DEVICE_ROUNDS):
                waiting = iter(events)
                torch.cuda._sleep(SLEEP_CYCLES + 40_000 * len(events))
                replay(*self.tensors)
                torch.cuda.synchronize()
                took = [one.elapsed_time(other) * 1e6 for one, other in itertools.pairwise(events)]
                self.kept.append(np.asarray(took).round().astype(np.int64))


def main_kinds(nodes: Sequence[TraceNode], costs: Mapping[int, NodeCost]) -> list[str]:
    """Return the kinds of operators that have their own figure: all, or if there are many those with the most recorded time or bytes.

    The choice does not use measurements, so that all builds of one replay report the same kinds, as pairs need.
    """
    timed = all(costs[node.id].seconds is not None for node in nodes)
    sums: collections.defaultdict[str, float] = collections.defaultdict(float)
    for node in nodes:
        sums[node.name] += (costs[node.id].seconds or 0.0) if timed else costs[node.id].bytes + CALL_BYTES
    return sorted(sorted(sums, key=lambda name: (-sums[name], name))[:MOST_KINDS])


def changing_integers(program: ReplayProgram, found: Any) -> list[int]:
    """Return the slots of given integers that one call writes to and another reads."""
    root = {item.slot: item.slot for item in program.given if "int" in item.ref.dtype}
    by_group = {item.slot: item.group for item in program.given}
    written, read = dict[int, set[int]](), dict[int, set[int]]()
    for number, call in enumerate(program.calls):
        for slot, alias in call.before:
            if alias.source in root:
                root[slot] = root[alias.source]
        names = [item.name for item in found[call.node.id].schema.arguments]
        writes = set(found[call.node.id].written)
        for name, value in zip(names, call.arguments, strict=False):
            for slot in program.slots_of(value):
                if slot in root:
                    (written if name in writes else read).setdefault(by_group[root[slot]], set()).add(number)
        _carry(call, root)
    both = {group for group, calls in written.items() if read.get(group, set()) - calls or len(calls) > 1}
    return [item.slot for item in program.given if item.group in both and item.slot in root]


def _carry(call: Any, root: dict[int, int]) -> None:
    """Treat a result in the memory of an input as that input."""
    inputs = [ref for argument in call.node.inputs for ref in argument.tensors()]
    slots = ReplayProgram.slots_of(call.arguments)
    for slot, ref in zip(call.results, (ref for argument in call.node.outputs for ref in argument.tensors()), strict=True):
        for source, other in zip(slots, inputs, strict=False):
            if slot is not None and other.storage == ref.storage and source in root:
                root[slot] = root[source]


def operator_rows(nodes: Sequence[TraceNode], seconds: Any) -> list[dict[str, Any]]:
    """Return operators with the shapes of their inputs, the slowest first: number of calls, time here, and recorded time."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for node, took in zip(nodes, seconds, strict=True):
        shapes = _play.shapes_of(node)
        row = rows.setdefault(
            (node.overload, shapes), {"operator": node.overload, "shapes": shapes, "calls": 0, "time": 0.0, "recorded": None}
        )
        row["calls"] += 1
        row["time"] += float(took)
        if node.time is not None:
            row["recorded"] = (row["recorded"] or 0.0) + (node.time.kernels or node.time.duration)
    return sorted(rows.values(), key=lambda row: -row["time"])[:MOST_ROWS]


def recorded_time(nodes: Sequence[TraceNode]) -> float | None:
    """Return the time from the start of the first recorded call to the end of the last; None if no times are linked."""
    times = [node.time for node in nodes if node.time is not None]
    return max(time.start + time.duration for time in times) - min(time.start for time in times) if times else None


def timeline(nodes: Sequence[TraceNode], seconds: Any) -> Arrays:
    """Return the time of each call here, and its recorded start and time if known; empty if there are too many calls."""
    if len(nodes) > MOST_CALLS:
        return {}
    names = {name: number for number, name in enumerate(sorted({node.name for node in nodes}))}
    times = [node.time for node in nodes]
    origin = min((time.start for time in times if time), default=0.0)
    series = {
        "replay_time": ("s", "<f8", np.asarray(seconds, "<f8")),
        "replay_node": ("1", "<i8", np.asarray([node.id for node in nodes], "<i8")),
        "replay_name": ("1", "<i4", np.asarray([names[node.name] for node in nodes], "<i4")),
    }
    if all(times):
        series["recorded_start"] = ("s", "<f8", np.asarray([time.start - origin for time in times if time], "<f8"))
        series["recorded_time"] = ("s", "<f8", np.asarray([time.duration for time in times if time], "<f8"))
    return {name: (unit, dtype, values.tobytes()) for name, (unit, dtype, values) in series.items()}
