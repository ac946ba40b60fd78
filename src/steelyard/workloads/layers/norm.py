"""A norm and the linear layer that reads it, which a fused kernel combines."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, trainable
from steelyard.workloads.ops.norm import EPS
from steelyard.workloads.ops.spaces import Space


def centre_project(x: Array, gain: Array, shift: Array, weight: Array, bias: Array) -> Array:
    """The layer in torch; weights are arguments so that the harness can move them."""
    import torch.nn.functional as F

    return F.linear(F.layer_norm(x, x.shape[-1:], gain, shift, EPS), weight, bias)


def centre_project_in(space: Space) -> Callable[..., Array]:
    """The layer in other frameworks."""
    return lambda x, gain, shift, weight, bias: space.linear(space.layer_norm(x, gain, shift, EPS), weight, bias)


@trainable(
    "layer/ln_linear",
    axes={"batch": [1], "seq": [64], "hidden": [512], "out": [512], "dtype": ["fp32"]},
    tags=["layer", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"seq": 16, "hidden": 64, "out": 64},
        "h200": {"batch": 8, "seq": 2048, "hidden": 4096, "out": 14336, "dtype": "bf16"},
    },
)
def ln_linear(batch: int, seq: int, hidden: int, out: int, dtype: str, be: Backend) -> Task:
    """Layer norm, then a linear layer; compute bound, with a memory-bound norm to fuse."""
    fn = form(be, lambda torch: centre_project, shared=centre_project_in)
    tokens = batch * seq
    x = be.randn(batch, seq, hidden, dtype=dtype)
    gain = be.uniform(hidden, low=0.5, high=1.5, dtype=dtype)
    shift = be.randn(hidden, dtype=dtype)
    weight = be.randn(out, hidden, dtype=dtype, scale=hidden**-0.5)
    bias = be.randn(out, dtype=dtype)
    weights = (gain, shift, weight, bias)
    moved = size(dtype, tokens * hidden, 2 * hidden, out * hidden, out, tokens * out)
    return Task(fn, (x, *weights), flops=2.0 * tokens * hidden * out, bytes=moved, items=tokens, parameters=weights)
