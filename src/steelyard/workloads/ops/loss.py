"""Losses."""

from __future__ import annotations

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import INDEX, Array, size
from steelyard.workloads.ops.forms import Backend, form, operator


def surprise(logits: Array, target: Array) -> Array:
    """Mean cross-entropy in numpy by a shifted log-sum-exp."""
    import numpy as np

    top = logits.max(axis=-1)
    total = np.log(np.exp(logits - top[:, None]).sum(axis=-1)) + top
    return (total - logits[np.arange(len(logits)), target]).mean()


@operator(
    "op/cross_entropy",
    axes={"tokens": [64], "vocab": [4096], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"tokens": 8, "vocab": 256}, "h200": {"tokens": 2048, "vocab": 131072, "dtype": "bf16"}},
)
def cross_entropy(tokens: int, vocab: int, dtype: str, be: Backend) -> Task:
    """Mean cross-entropy of logits against classes; memory bound, and it stores the log-probabilities unless fused."""
    fn = form(be, lambda torch: torch.nn.functional.cross_entropy, lambda np: surprise)
    logits = be.randn(tokens, vocab, dtype=dtype)
    target = be.integers(0, vocab, tokens)
    moved = size(dtype, tokens * vocab, 1) + size(INDEX, tokens)
    return Task(fn, (logits, target), flops=float(4 * tokens * vocab), bytes=moved, items=tokens)
