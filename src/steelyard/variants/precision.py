"""Variants that change how numbers are rounded: autocast and TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplied, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of, floating_inputs, nested

LOW = Literal["bf16", "fp16"]
AUTOCAST_TOLERANCE = (5e-2, 2e-2)


@variant("autocast", backends=["torch"])
def autocast(task: Task, be: Any, dtype: LOW = "bf16") -> Task:
    """Matrix work in half precision by torch.autocast; compared with the full-precision answer at its own tolerance."""
    import torch

    body_of(task)
    low = be.dtype(dtype)
    if not any(item.dtype in (torch.float32, torch.float64) for item in floating_inputs(task)):
        raise NotApplied("the inputs are in half precision already, so autocast changes nothing")
    kind = be.where.type

    def cast() -> Any:
        return torch.autocast(kind, low, cache_enabled=False)

    loose = task.tolerance or AUTOCAST_TOLERANCE
    return replace(task, scope=nested(task.scope, cast), tolerance=loose, any_dtype=True, effective={**task.effective, "autocast": dtype})


@variant("tf32", backends=["torch"])
def tf32(task: Task, be: Any, on: bool = True) -> Task:
    """TF32 tensor cores for fp32 matrix work, on or off."""
    import torch

    if be.device != "cuda" or torch.cuda.get_device_capability()[0] < 8:
        raise Unsupported("TF32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    if not any(item.dtype == torch.float32 for item in floating_inputs(task)):
        raise NotApplied("no input is fp32, so TF32 changes nothing")

    @contextmanager
    def scope() -> Iterator[None]:
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = (matmul.allow_tf32, convolution.allow_tf32)
        matmul.allow_tf32 = convolution.allow_tf32 = on
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before

    loose = task.tolerance or ((1e-2, 5e-3) if on else None)
    return replace(task, scope=nested(task.scope, scope), tolerance=loose, effective={**task.effective, "tf32": on})
