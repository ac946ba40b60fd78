"""The linear layer as models call it: a batch of sequences through one weight."""

from __future__ import annotations

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import Backend, form, trainable


def project(x: Array, weight: Array, bias: Array) -> Array:
    """Affine map of the last axis, in numpy."""
    return x @ weight.T + bias


@trainable(
    "layer/linear",
    axes={"batch": [1], "seq": [64], "hidden": [512], "out": [512], "dtype": ["fp32"]},
    tags=["layer", "compute", "smoke"],
    sizes={
        "small": {"seq": 16, "hidden": 64, "out": 64},
        "h200": {"batch": 8, "seq": 2048, "hidden": 4096, "out": 14336, "dtype": "bf16"},
    },
)
def linear(batch: int, seq: int, hidden: int, out: int, dtype: str, be: Backend) -> Task:
    """Linear layer with bias over a batch of sequences; compute bound, or bound by reading the weight for few tokens."""
    fn = form(be, lambda torch: torch.nn.functional.linear, lambda np: project)
    tokens = batch * seq
    x = be.randn(batch, seq, hidden, dtype=dtype)
    weight = be.randn(out, hidden, dtype=dtype, scale=hidden**-0.5)
    bias = be.randn(out, dtype=dtype)
    moved = size(dtype, tokens * hidden, out * hidden, out, tokens * out)
    flops = 2.0 * tokens * hidden * out
    return Task(fn, (x, weight, bias), flops=flops, bytes=moved, items=tokens, parameters=(weight, bias))
