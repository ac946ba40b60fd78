"""Self-attention with its projections, with as many heads for keys and values as for queries, or fewer."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import layer_tolerance
from steelyard.workloads.ops.attention import pairs
from steelyard.workloads.ops.cost import Array, divides, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, trainable
from steelyard.workloads.ops.spaces import Space


def mix(x: Array, w_q: Array, w_k: Array, w_v: Array, w_out: Array, heads: int, kv_heads: int, causal: bool) -> Array:
    """The layer in torch; weights are arguments so that the harness can move them."""
    import torch.nn.functional as F

    batch, seq, _ = x.shape
    q = F.linear(x, w_q).view(batch, seq, heads, -1).transpose(1, 2)
    k = F.linear(x, w_k).view(batch, seq, kv_heads, -1).transpose(1, 2)
    v = F.linear(x, w_v).view(batch, seq, kv_heads, -1).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
    return F.linear(mixed.transpose(1, 2).reshape(batch, seq, -1), w_out)


def mix_in(space: Space) -> Callable[..., Array]:
    """The layer in other frameworks."""

    def mix(x: Array, w_q: Array, w_k: Array, w_v: Array, w_out: Array, heads: int, kv_heads: int, causal: bool) -> Array:
        batch, seq, hidden = x.shape

        def split(weight: Array, count: int) -> Array:
            return space.transpose(space.reshape(space.linear(x, weight), (batch, seq, count, hidden // heads)), (0, 2, 1, 3))

        mixed = space.attend(split(w_q, heads), split(w_k, kv_heads), split(w_v, kv_heads), causal)
        return space.linear(space.reshape(space.transpose(mixed, (0, 2, 1, 3)), (batch, seq, hidden)), w_out)

    return mix


def attention_weights(hidden: int, heads: int, kv_heads: int, dtype: str, be: Backend) -> tuple[Array, ...]:
    """Query, key, value and output projections, in the order in which `mix` takes them."""
    narrow = divides("heads", heads, "hidden", hidden) * kv_heads
    divides("kv_heads", kv_heads, "heads", heads)
    return tuple(be.randn(out, hidden, dtype=dtype, scale=hidden**-0.5) for out in (hidden, narrow, narrow, hidden))


def attention_flops(batch: int, seq: int, hidden: int, heads: int, kv_heads: int, causal: bool) -> float:
    """Matrix products only: four projections, and two products for each query-key pair that counts."""
    return 2.0 * batch * seq * attention_size(hidden, heads, kv_heads) + 4.0 * batch * pairs(seq, causal) * hidden


def attention_size(hidden: int, heads: int, kv_heads: int) -> int:
    """Number of weights."""
    return 2 * hidden * hidden + 2 * hidden * (hidden // heads * kv_heads)


@trainable(
    "layer/attention",
    axes={"batch": [1], "seq": [64], "hidden": [256], "heads": [4], "kv_heads": [4], "causal": [True], "dtype": ["fp32"]},
    tags=["layer", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={
        "small": {"seq": 16, "hidden": 64, "heads": 2, "kv_heads": 2},
        "h200": {"batch": 4, "seq": 4096, "hidden": 4096, "heads": 32, "kv_heads": 8, "dtype": "bf16"},
    },
)
def attention(batch: int, seq: int, hidden: int, heads: int, kv_heads: int, causal: bool, dtype: str, be: Backend) -> Task:
    """Self-attention with its four projections; compute bound, for long sequences mostly by attention itself."""
    fn = form(be, lambda torch: mix, shared=mix_in)
    x = be.randn(batch, seq, hidden, dtype=dtype)
    weights = attention_weights(hidden, heads, kv_heads, dtype, be)
    moved = size(dtype, 2 * batch * seq * hidden, attention_size(hidden, heads, kv_heads))
    flops = attention_flops(batch, seq, hidden, heads, kv_heads, causal)
    args = (x, *weights, heads, kv_heads, causal)
    return Task(fn, args, flops=flops, bytes=moved, items=batch * seq, parameters=weights, tolerance=layer_tolerance(dtype))
