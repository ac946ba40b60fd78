"""What PyTorch offers besides timing: a profiler, a history of allocations, the compiler's own counters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from steelyard.model.task import Task

LEFT_OUT, WARM, KEPT = 2, 5, 3
"""How many calls a profile with stacks skips, runs as warm-up, and records."""
SHAPE_ROWS = 100
OWN_WORK = "Activity Buffer Request"
LONGEST_HISTORY = 1_000_000
CODE = (".so", ".cubin", ".hsaco")
COUNTED = ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass")


def model_bytes(task: Task) -> int:
    """Return the bytes of a module's present weights and buffers, which quantizing changes, or of the declared parameters."""
    held: list[Any] = [*task.fn.parameters(), *task.fn.buffers()] if isinstance(task.fn, torch.nn.Module) else list(task.parameters)
    return sum(_nbytes(item) for item in {id(item): item for item in held}.values())


def _nbytes(value: Any) -> int:
    """Return a tensor's bytes; a quantized one reports its logical size, so the tensors that it wraps are counted."""
    if hasattr(value, "__tensor_flatten__"):
        return sum(_nbytes(getattr(value, name)) for name in value.__tensor_flatten__()[0])
    return int(getattr(value, "nbytes", 0))


def leaves(value: Any, path: str = "out") -> dict[str, Any]:
    """Return the tensors of an answer by their path in it, including those inside a library's dataclasses."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    if isinstance(value, Mapping):
        return {name: leaf for key, item in value.items() for name, leaf in leaves(item, f"{path}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return {name: leaf for place, item in enumerate(value) for name, leaf in leaves(item, f"{path}[{place}]").items()}
    if is_dataclass(value) and not isinstance(value, type):
        return leaves({item.name: getattr(value, item.name) for item in fields(value)}, path)
    return {}


def profile(call: Callable[[], Any], sync: Callable[[], None], device: str, trace: Path, calls: int) -> list[dict[str, Any]]:
    """Trace a few calls and return one row per kernel or operator; the first trace pays for starting the tracer and is thrown away."""
    kinds = [ProfilerActivity.CPU, *([getattr(ProfilerActivity, device.upper())] if device in ("cuda", "xpu") else [])]
    for count in (1, calls):
        with torch.profiler.profile(activities=kinds) as seen:
            for _ in range(count):
                call()
            sync()
    seen.export_chrome_trace(str(trace))
    rows = [_row(item) for item in seen.key_averages() if item.key != OWN_WORK and not getattr(item, "is_user_annotation", False)]
    return sorted((row for row in rows if row["total"] > 0), key=lambda row: (row["where"] == "cpu", -row["total"]))


def wait_for_cuda() -> None:
    """Wait for all work on the CUDA device, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def profile_stacks(call: Callable[[], Any], sync: Callable[[], Any], folder: Path) -> list[Path]:
    """Write stacks for a flame graph, a trace with stacks and shapes, and a table by operator and shape, for a few calls after warm-up."""
    on_cuda = torch.cuda.is_available()
    where = "cuda" if on_cuda else "cpu"
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])],
        record_shapes=True, with_flops=True, profile_memory=True, with_stack=True,
        schedule=torch.profiler.schedule(wait=LEFT_OUT, warmup=WARM, active=KEPT),
        experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
    ) as seen:  # fmt: skip
        for _ in range(LEFT_OUT + WARM + KEPT):
            call()
            seen.step()
        sync()
    flame, trace, kernels = files = [folder / name for name in ("flame.txt", "trace.json", "kernel.txt")]
    seen.export_stacks(str(flame), metric=f"self_{where}_time_total")
    seen.export_chrome_trace(str(trace))
    table = seen.key_averages(group_by_input_shape=True).table(sort_by=f"{where}_time_total", row_limit=SHAPE_ROWS)
    kernels.write_text(table, encoding="utf-8")
    return files


def _row(item: Any) -> dict[str, Any]:
    """Return a table row with the time spent in an operator or kernel itself, without what it called."""
    host = item.device_type == DeviceType.CPU
    total = float(item.self_cpu_time_total if host else item.self_device_time_total) * 1e-6
    where = "cpu" if host else item.device_type.name.lower()
    row = {"name": item.key, "where": where, "calls": int(item.count), "total": total, "mean": total / max(item.count, 1)}
    if host:
        names = {"with_callees": "cpu_time_total", "device": "self_device_time_total", "device_with_callees": "device_time_total"}
        row |= {name: float(getattr(item, attribute, 0.0)) * 1e-6 for name, attribute in names.items()}
    return row


@contextmanager
def snapshot(path: Path) -> Iterator[None]:
    """Write the allocator's history of what runs inside; the file has torch's own format and is never read by us."""
    torch.cuda.memory._record_memory_history(max_entries=LONGEST_HISTORY)
    try:
        yield
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def cache_counts() -> dict[str, int]:
    """Return the hits and misses of the cache of compiled graphs."""
    if "torch._dynamo" not in sys.modules:
        return {}
    from torch._dynamo.utils import counters

    return {name.removeprefix("fxgraph_cache_"): int(counters["inductor"][name]) for name in COUNTED}


def code_size() -> dict[str, float]:
    """Return the bytes of libraries and device code in Inductor's folder, which only this process uses where compiling is measured."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    made = [path for path in Path(folder).rglob("*") if path.suffix in CODE] if folder and Path(folder).is_dir() else []
    return {"code_size": float(sum(path.stat().st_size for path in made))} if made else {}
