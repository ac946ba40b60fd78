"""Scaled dot-product attention, plain, causal and grouped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, divides, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, operator
from steelyard.workloads.ops.spaces import in_numpy


def attend(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """Attention in numpy with the whole score matrix."""
    return in_numpy().attend(q, k, v, causal)


def pairs(seq: int, causal: bool) -> int:
    """Query-key pairs that count: a causal mask leaves the lower triangle, and skipped pairs do not count as work."""
    return seq * (seq + 1) // 2 if causal else seq * seq


def fused(torch: Any, grouped: bool) -> Callable[..., Array]:
    """Attention in torch, which chooses a kernel by itself."""
    F = torch.nn.functional
    return lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


@operator(
    "op/sdpa",
    axes={"batch": [1], "heads": [4], "kv_heads": [4], "seq": [128], "head_dim": [64], "causal": [True], "dtype": ["fp32"]},
    tags=["op", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={
        "small": {"heads": 2, "kv_heads": 2, "seq": 32, "head_dim": 32},
        "h200": {"batch": 4, "heads": 32, "kv_heads": 8, "seq": 8192, "head_dim": 128, "dtype": "bf16"},
    },
)
def sdpa(batch: int, heads: int, kv_heads: int, seq: int, head_dim: int, causal: bool, dtype: str, be: Backend) -> Task:
    """Scaled dot-product attention of a prompt; compute bound when fused, memory bound when the scores are stored."""
    divides("kv_heads", kv_heads, "heads", heads)
    fn = form(be, lambda torch: fused(torch, kv_heads != heads), shared=lambda space: space.attend)
    q = be.randn(batch, heads, seq, head_dim, dtype=dtype)
    k = be.randn(batch, kv_heads, seq, head_dim, dtype=dtype)
    v = be.randn(batch, kv_heads, seq, head_dim, dtype=dtype)
    flops = 4.0 * batch * heads * pairs(seq, causal) * head_dim
    moved = size(dtype, 2 * batch * heads * seq * head_dim, 2 * batch * kv_heads * seq * head_dim)
    return Task(fn, (q, k, v, causal), flops=flops, bytes=moved, items=batch * seq)
