"""The choice of kernel behind scaled dot-product attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplied, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Scope, Task, nested
from steelyard.variants.watch import ObservedCall, differ, watch
from steelyard.variants.wrap import body_of

Kernel = Literal["flash", "efficient", "math", "cudnn"]
NO_KERNEL = ("No available kernel", "No viable backend")
FUSED = "_scaled_dot_product_"


@variant("sdpa", backends=["torch"])
def sdpa(task: Task, be: Any, kernel: Kernel = "flash") -> Task:
    """Scaled dot-product attention by one named kernel."""
    body_of(task)
    scope = only(kernel)
    plain, forced = watch(task, be), watch(task, be, scope)
    if forced.error and any(words in str(forced.error) for words in NO_KERNEL):
        first = str(forced.error).split("\n")[0][:120]
        raise Unsupported(
            f"the {kernel} attention kernel cannot run this case here", why=first, do="try sdpa[kernel=math]"
        ) from forced.error
    if not differ(task, be, plain, forced):
        if attends(task, be, plain):
            raise NotApplied(f"{kernel} is the default here", why="the same kernels run without this variant")
        raise NotApplied("the workload never calls scaled_dot_product_attention")
    return replace(task, scope=nested(task.scope, scope), effective={**task.effective, "sdpa": kernel})


def only(kernel: Kernel) -> Scope:
    """Return a scope in which attention can use this kernel only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = {
        "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH, "cudnn": SDPBackend.CUDNN_ATTENTION,
    }[kernel]  # fmt: skip
    return lambda: sdpa_kernel(chosen)


def attends(task: Task, be: Any, plain: ObservedCall) -> bool:
    """Whether a call uses attention: a fused kernel is visible, and the unfused form is found by forcing a fused kernel on it."""
    if any(FUSED in op for op in plain.ops):
        return True
    forced = watch(task, be, only("flash"))
    return forced.error is not None or differ(task, be, plain, forced)
