"""Calls the Triton kernels, and reports why they cannot run here before Triton is imported."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Literal

from steelyard.errors import Unsupported
from steelyard.model.task import Task
from steelyard.workloads.ops.forms import Backend

DTYPES = ("torch.float16", "torch.bfloat16", "torch.float32")


def by_triton(task: Task, be: Backend, kernel: Literal["softmax", "rms_norm", "matmul"]) -> Task:
    """The same call through one of our kernels; compiled and tuned here, so that the first timed call needs only its own memory."""
    if be.device != "cuda":
        raise Unsupported(f"the Triton kernel needs an NVIDIA GPU, not device {be.device!r}", do="add -d cuda")
    if importlib.util.find_spec("triton") is None:
        raise Unsupported("triton is not installed here", do="pip install triton")
    if (dtype := str(task.args[0].dtype)) not in DTYPES:
        raise Unsupported(f"the Triton kernel computes in fp32, which is too coarse for {dtype}", do="use fp32, bf16 or fp16")
    import hashlib
    import inspect
    from importlib.metadata import version

    from steelyard.workloads.ops import _triton

    facts = {"triton": version("triton"), "kernels": hashlib.sha256(inspect.getsource(_triton).encode()).hexdigest()[:12]}
    made = replace(task, fn=getattr(_triton, kernel), effective={**task.effective, **facts})
    made()
    return made
