"""Steps of our models recorded in this process, for benchmarks that hold a replay against the step itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, record_function

from steelyard.engine.bench import prepare_bench
from steelyard.engine.messages import Sources
from steelyard.engine.worker import load
from steelyard.model.case import Case
from steelyard.model.experiment import Settings


@dataclass(frozen=True)
class RecordedStep:
    """A step that can be called again, and the trace of one call of it."""

    trace: Path
    step: Callable[[], None]


def record(name: str, mode: str, path: Path, device: str = "cpu", params: Mapping[str, Any] | None = None) -> RecordedStep:
    """Build a workload of ours as a case has it, warm it up, and record one call."""
    loaded = load(Sources(), {})
    axes = {key: values[0] for key, values in loaded.workloads[name].axes.items()}
    bench = prepare_bench(Case(name, tuple({**axes, **(params or {})}.items()), mode=mode, device=device), loaded, Settings(verify=False))
    be, task = bench.build()
    ready = bench.ready(be, task)

    def step() -> None:
        with ready.scope() if ready.scope else contextlib.nullcontext():
            assert ready.fn is not None
            ready.fn(*ready.args, **ready.kwargs)

    def prepared() -> None:
        if ready.prepare:
            ready.prepare()
        step()

    for _ in range(3):
        prepared()
    be.sync()
    observer = ExecutionTraceObserver().register_callback(str(path))
    if ready.prepare:
        ready.prepare()
    observer.start()
    with record_function("ProfilerStep#0"):
        step()
    be.sync()
    observer.stop()
    observer.unregister_callback()
    return RecordedStep(path, prepared)


@dataclass(frozen=True)
class ReplayedStep:
    """A replay of a trace in this process, as the workload makes it."""

    run: Callable[[], None]
    facts: Mapping[str, Any]
    steps: Any
    tensors: tuple[Any, ...]


def replay(path: Path, device: str = "cpu") -> ReplayedStep:
    """The replay itself, without the clock that reads the time of each operator."""
    from steelyard.workloads.traces import _play
    from steelyard.workloads.traces.replay import prepared

    made = prepared(str(path), {}, device)
    source = made.source(0)
    steps = _play.Linker(made.fitted.program, source.device_of).steps(made.fitted.found)
    tensors = tuple(source.tensors(made.fitted.program, made.bounds))
    bare = steps.run()

    def run() -> None:
        with torch.no_grad():
            bare(*tensors)

    return ReplayedStep(run, made.facts(), steps, tensors)
