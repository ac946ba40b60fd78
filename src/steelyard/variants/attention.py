"""The choice of kernel behind scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplied, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of, nested

Kernel = Literal["flash", "efficient", "math", "cudnn"]


@variant("sdpa", backends=["torch"])
def sdpa(task: Task, be: Any, kernel: Kernel = "flash") -> Task:
    """Scaled dot-product attention by one named kernel."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = {
        "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH, "cudnn": SDPBackend.CUDNN_ATTENTION,
    }[kernel]  # fmt: skip
    fn = body_of(task)
    if not uses_attention(fn, task):
        raise NotApplied("the workload never calls scaled_dot_product_attention")

    try:
        with torch.no_grad(), sdpa_kernel(chosen):
            fn(*task.args, **task.kwargs)
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            first = str(error).split("\n")[0][:120]
            raise Unsupported(f"the {kernel} attention kernel cannot run this case here", why=first, do="try sdpa[kernel=math]") from error
        raise
    return replace(task, scope=nested(task.scope, lambda: sdpa_kernel(chosen)), effective={**task.effective, "sdpa": kernel})


def uses_attention(fn: Callable[..., Any], task: Task) -> bool:
    """Whether one call reaches the attention function, counted rather than guessed."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += func is torch.nn.functional.scaled_dot_product_attention
            return func(*args, **(kwargs or {}))

    with Count() as count, torch.no_grad():
        fn(*task.args, **task.kwargs)
    return bool(count.seen)
