"""Variants that change how numbers are rounded: autocast and TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplied, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Task, nested
from steelyard.variants.watch import ObservedCall, differ, watch
from steelyard.variants.wrap import arrays, body_of

LOW = Literal["bf16", "fp16"]
AUTOCAST_TOLERANCE = (5e-2, 2e-2)
TF32_TOLERANCE = (1e-2, 5e-3)
PRODUCTS = {"mm", "addmm", "_addmm_activation", "bmm", "baddbmm", "addbmm", "matmul", "linear"}
CONVOLUTIONS = {"convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose", "conv2d", "_cudnn_rnn"}


@variant("autocast", backends=["torch", "torch_xla"], casts=True)
def autocast(task: Task, be: Any, dtype: LOW = "bf16") -> Task:
    """Matrix work in half precision by torch.autocast; compared with the full-precision answer at its own tolerance."""
    import torch

    body_of(task)
    low = be.dtype(dtype)
    kind = be.where.type

    def cast() -> Any:
        return torch.autocast(kind, low, cache_enabled=False)

    plain, under = (watch(task, be), watch(task, be, cast)) if be.name == "torch" else (None, None)
    if plain and under and not (plain.error or under.error or under.beyond(plain)):
        formats = {item.dtype for item in arrays([task.args, task.kwargs, task.parameters]) if item.is_floating_point()}
        if formats and formats <= {torch.float16, torch.bfloat16}:
            raise NotApplied("the inputs are in half precision already, so autocast changes nothing")
        raise NotApplied("this workload has no operation that autocast casts")
    loose = task.tolerance or AUTOCAST_TOLERANCE
    return replace(task, scope=nested(task.scope, cast), tolerance=loose, any_dtype=True, effective={**task.effective, "autocast": dtype})


@variant("tf32", backends=["torch"], casts=True)
def tf32(task: Task, be: Any, on: bool = True) -> Task:
    """TF32 tensor cores for fp32 matrix work, on or off."""
    import torch

    if be.device != "cuda" or torch.cuda.get_device_capability()[0] < 8:
        raise Unsupported("TF32 needs an NVIDIA GPU of compute capability 8.0 or newer")
    body_of(task)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    @contextmanager
    def scope() -> Iterator[None]:
        before = (matmul.allow_tf32, cudnn.allow_tf32)
        matmul.allow_tf32 = cudnn.allow_tf32 = on
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before

    with (task.scope or nullcontext)():
        turned = {name for name, flag in (("products", matmul), ("convolutions", cudnn)) if flag.allow_tf32 != on}
    if not turned:
        raise NotApplied(f"TF32 is already {'on' if on else 'off'} here")
    plain = watch(task, be)
    work = fp32_work(plain)
    if not turned & work and not differ(task, be, plain, watch(task, be, scope)):
        raise NotApplied(
            f"TF32 is already {'on' if on else 'off'} here for {work.pop()}, and nothing else in this workload could use it"
            if work
            else "no fp32 product or convolution runs, so TF32 changes nothing"
        )
    loose = task.tolerance or (TF32_TOLERANCE if on else None)
    return replace(task, scope=nested(task.scope, scope), tolerance=loose, effective={**task.effective, "tf32": on})


def rounds_to_tf32(task: Task, be: Any) -> bool:
    """Whether fp32 work of a plain task uses TF32 by torch's own settings, as convolutions do by default."""
    if be.name != "torch" or be.device != "cuda" or task.fn is None:
        return False
    import torch

    with (task.scope or nullcontext)():
        switches = {"products": torch.backends.cuda.matmul.allow_tf32, "convolutions": torch.backends.cudnn.allow_tf32}
    return torch.cuda.get_device_capability()[0] >= 8 and any(switches[kind] for kind in fp32_work(watch(task, be)))


def fp32_work(seen: ObservedCall) -> set[str]:
    """The kinds of fp32 matrix work in a call; each has its own switch for TF32."""
    ops = {step.op for step in seen.steps if any(form.dtype == "float32" for form in step.takes)}
    return {name for name, known in (("products", PRODUCTS), ("convolutions", CONVOLUTIONS)) if ops & known}
