"""Traces of everything that a worker measures: PyTorch's profiler, with a device's counters where asked, and executed operators."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity

from steelyard.errors import Unsupported
from steelyard.model.protocol import Traces


@contextmanager
def traced(traces: Traces, device: str, files: dict[str, str]) -> Iterator[None]:
    """Take the traces that were asked for; where they lie is told once they are whole."""
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
    """Kineto over everything that runs inside, with shapes; with counters only what they need, since they slow every kernel."""
    activities = [ProfilerActivity.CPU] if not traces.counters or traces.per_kernel else []
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    counters = {"profiler_metrics": list(traces.counters), "profiler_measure_per_kernel": traces.per_kernel}
    config = torch._C._profiler._ExperimentalConfig(**counters) if traces.counters else None
    return torch.profiler.profile(activities=activities, record_shapes=True, experimental_config=config)


def check_counters(traces: Traces, device: str) -> None:
    """Few builds of torch can read a device's counters, and the others say nothing; so one kernel is tried first."""
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


@contextmanager
def _execution(path: str, files: dict[str, str]) -> Iterator[None]:
    observer = ExecutionTraceObserver()
    observer.register_callback(path)
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()
    files["et_file"] = path
