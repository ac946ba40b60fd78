"""The linear layer as models call it: a batch of sequences through one weight."""

from __future__ import annotations

from steelyard.model.task import Task
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, trainable
from steelyard.workloads.ops.gemm import affine


@trainable(
    "layer/linear",
    axes={"batch": [1], "seq": [64], "hidden": [512], "out": [512], "dtype": ["fp32"]},
    tags=["layer", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={
        "small": {"seq": 16, "hidden": 64, "out": 64},
        "h200": {"batch": 8, "seq": 2048, "hidden": 4096, "out": 14336, "dtype": "bf16"},
    },
)
def linear(batch: int, seq: int, hidden: int, out: int, dtype: str, be: Backend) -> Task:
    """Linear layer with bias over a batch of sequences; compute bound, or bound by reading the weight for few tokens."""
    return affine(be, dtype, (batch, seq), hidden, out)
