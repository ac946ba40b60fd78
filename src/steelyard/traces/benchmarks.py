"""A recorded step as an experiment: each distinct call once, weighted by how often it occurred."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.files import CONFIG, read_text
from steelyard.model.experiment import Experiment, Matrix
from steelyard.model.units import number_of
from steelyard.model.units import plain as quantity
from steelyard.traces.calls import UniqueCall, step_time, unique_calls
from steelyard.traces.steps import Trace

WORKLOAD = "call/torch"
MOST_THREADS, LONGEST = 4096, 1e6


def callable_calls(trace: Trace) -> tuple[list[UniqueCall], list[str]]:
    """The calls of a step that a config can express, longest recorded time first, and a line for each call that it cannot."""
    calls = unique_calls(trace.outermost)
    fine = sorted((call for call in calls if call.spec is not None), key=lambda call: (-(call.recorded or 0), call.first))
    lost = [
        f"node {call.first} ({call.op}): {call.reason}, {number_of(call.count, 'call')} left out" for call in calls if call.spec is None
    ]
    return fine, lost


def experiment(trace: Trace, calls: Sequence[UniqueCall]) -> Experiment:
    """An experiment with a matrix and a weight for each call; a run of it predicts the step."""
    device = "cuda" if any(ref.device.startswith("cuda") for node in trace.outermost for ref in _tensors(node)) else "cpu"
    known = noted(trace.path)
    matrices = tuple(
        Matrix((WORKLOAD,), {"op": (call.op,), "input": (call.spec,)}, device=(device,), threads=(known.threads,), weight=float(call.count))
        for call in calls
    )
    recorded = known.step or step_time(trace)
    times = [call.recorded for call in calls if call.recorded is not None]
    words = f"{number_of(sum(call.count for call in calls), 'call')}, {len(calls)} of them distinct"
    if recorded is not None:
        words += f"; the step took {quantity(recorded, 's')} when it was recorded, {quantity(sum(times), 's')} of it in these calls"
    return Experiment(trace.path.name, words, matrices, recorded=recorded)


def _tensors(node: Any) -> Iterator[Any]:
    for argument in node.inputs:
        yield from argument.tensors()


@dataclass(frozen=True)
class NotedRun:
    """What was recorded beside a trace: the threads of its process, and how long a step took unobserved, in seconds."""

    threads: int = 1
    step: float | None = None


def noted(trace: Path) -> NotedRun:
    """The content of a trace's `environment.json`; without that file, one thread and no recorded time."""
    path = trace.with_name(f"{trace.name.removesuffix('.gz').removesuffix('.json')}.environment.json")
    try:
        found = json.loads(read_text(path, CONFIG))
    except (UsageError, ValueError, RecursionError):
        return NotedRun()
    threads, step = (found.get("threads"), found.get("step_seconds")) if isinstance(found, dict) else (1, None)
    return NotedRun(
        threads if isinstance(threads, int) and 1 <= threads <= MOST_THREADS else 1,
        float(step) if isinstance(step, (int, float)) and 0 < step < LONGEST else None,
    )
