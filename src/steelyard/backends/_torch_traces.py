"""Traces of everything that a worker measures: PyTorch's profiler, with a device's counters on request, and executed operators."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity

from steelyard.backends._torch_compiled import keep_sources, kernels_noted, paused_while_compiling
from steelyard.errors import Unsupported
from steelyard.model.protocol import Traces
from steelyard.traces.nodes import STEP

INDEXING = ("embedding", "embedding_bag", "_embedding_bag", "index_select", "gather", "index", "nll_loss_forward")
INTEGERS = {
    "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_RANGE": "1",
    "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_DATA": ",".join(f"aten::{name}" for name in INDEXING),
}
"""Variables that make PyTorch record the range of every integer tensor, and the values of those that these operators index with."""


@contextmanager
def traced(traces: Traces, device: str, files: dict[str, str]) -> Iterator[None]:
    """Take the requested traces; their paths are reported once they are complete."""
    if traces.counters:
        check_counters(traces, device)
    with ExitStack() as stack:
        if traces.execution:
            stack.enter_context(_execution(f"{traces.stem}_et.json", files))
        seen = stack.enter_context(profiler(traces, device)) if traces.profile else None
        yield
    if seen is not None:
        path = f"{traces.stem}_trace.json"
        seen.export_chrome_trace(path)
        files["trace_file"] = path


def profiler(traces: Traces, device: str) -> Any:
    """Return a Kineto profiler that records shapes; with counters it records only what they need, since they slow every kernel."""
    activities = [ProfilerActivity.CPU] if not traces.counters or traces.per_kernel else []
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    counters = {"profiler_metrics": list(traces.counters), "profiler_measure_per_kernel": traces.per_kernel}
    config = torch._C._profiler._ExperimentalConfig(**counters) if traces.counters else None
    return torch.profiler.profile(activities=activities, record_shapes=True, experimental_config=config)


def check_counters(traces: Traces, device: str) -> None:
    """Raise Unsupported if counters cannot be read; few builds of torch can, and others fail silently, so one kernel is tried."""
    with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
        trace = Path(folder) / "trace.json"
        with profiler(traces, device) as seen:
            torch.ones(8, device=device).add_(1)
            torch.cuda.synchronize()
        seen.export_chrome_trace(str(trace))
        text = trace.read_text(encoding="utf-8", errors="replace")
    if lacking := [name for name in traces.counters if name not in text]:
        raise Unsupported(
            f"the counters {', '.join(lacking)} cannot be read here",
            why="this build of torch has no range profiler, the counter does not exist, or the user may not read counters",
            do="use --ncu, or leave the counters out",
        )


@dataclass
class StepLabels:
    """Marks where one step of a recording ends and the next begins, as PyTorch's profiler does."""

    count: int = 0
    _open: Any = None

    def step(self) -> None:
        """End the present step and begin the next; the first call begins the first step."""
        self.end()
        self._open = torch.autograd.profiler.record_function(f"{STEP}{self.count}")
        self._open.__enter__()
        self.count += 1

    def end(self) -> None:
        """End the present step, if there is one."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


@contextmanager
def recording(path: str, profile: str = "", device: str = "cpu", *, resources: bool = True) -> Iterator[StepLabels]:
    """Record an execution trace of what runs inside, with the kernels and integers that a replay needs, and a profile if a path is given.

    A step that is still open at the end is ended before the files are closed.
    """
    files: dict[str, str] = {}
    labels = StepLabels()
    with ExitStack() as stack:
        stack.enter_context(_execution(path, files, resources=resources))
        seen = stack.enter_context(profiler(Traces(""), device)) if profile else None
        stack.callback(labels.end)
        yield labels
    if seen is not None:
        seen.export_chrome_trace(profile)


@contextmanager
def _execution(path: str, files: dict[str, str], *, resources: bool = False) -> Iterator[None]:
    observer = ExecutionTraceObserver()
    before = {name: os.environ.get(name) for name in INTEGERS}
    if resources:
        os.environ.update(INTEGERS)
    try:
        observer.register_callback(path)
        if resources:
            observer.set_extra_resource_collection(True)
        observer.start()
        try:
            with ExitStack() as stack:
                if resources:
                    stack.enter_context(kernels_noted())
                    stack.enter_context(paused_while_compiling(observer))
                yield
        finally:
            observer.stop()
            observer.unregister_callback()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    if not Path(path).is_file():
        raise Unsupported(f"no execution trace was written to {path}", why="another observer may be recording in this process")
    if resources and observer.resources_dir:
        keep_sources(Path(path), Path(observer.resources_dir))
    files["et_file"] = path
