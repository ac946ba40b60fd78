"""A whole transformer block: pre-norm attention and a gated MLP, each added to its input."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.model.task import Task
from steelyard.workloads.layers.attention import attention_flops, attention_size, attention_weights, mix, mix_in
from steelyard.workloads.layers.mlp import feed, feed_in, mlp_weights
from steelyard.workloads.layers.rounding import layer_tolerance
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, trainable
from steelyard.workloads.ops.norm import EPS
from steelyard.workloads.ops.spaces import Space


def block(
    x: Array, gain_1: Array, w_q: Array, w_k: Array, w_v: Array, w_out: Array,
    gain_2: Array, w_up: Array, w_down: Array, w_gate: Array, heads: int, kv_heads: int, causal: bool,
) -> Array:  # fmt: skip
    """The block in torch; weights are arguments so that the harness can move them."""
    import torch.nn.functional as F

    width = x.shape[-1:]
    x = x + mix(F.rms_norm(x, width, gain_1, EPS), w_q, w_k, w_v, w_out, heads, kv_heads, causal)
    return x + feed(F.rms_norm(x, width, gain_2, EPS), w_up, w_down, w_gate)


def block_in(space: Space) -> Callable[..., Array]:
    """The block in other frameworks."""
    mix, feed = mix_in(space), feed_in(space)

    def block(
        x: Array, gain_1: Array, w_q: Array, w_k: Array, w_v: Array, w_out: Array,
        gain_2: Array, w_up: Array, w_down: Array, w_gate: Array, heads: int, kv_heads: int, causal: bool,
    ) -> Array:  # fmt: skip
        x = x + mix(space.rms_norm(x, gain_1, EPS), w_q, w_k, w_v, w_out, heads, kv_heads, causal)
        return x + feed(space.rms_norm(x, gain_2, EPS), w_up, w_down, w_gate)

    return block


@trainable(
    "layer/transformer_block",
    axes={
        "batch": [1], "seq": [64], "hidden": [256], "ffn": [768], "heads": [4], "kv_heads": [4], "causal": [True], "dtype": ["fp32"],
    },
    tags=["layer", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"seq": 16, "hidden": 64, "ffn": 128, "heads": 2, "kv_heads": 2},
        "h200": {"batch": 4, "seq": 4096, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "dtype": "bf16"},
    },
)  # fmt: skip
def transformer_block(
    batch: int, seq: int, hidden: int, ffn: int, heads: int, kv_heads: int, causal: bool, dtype: str, be: Backend
) -> Task:
    """Pre-norm transformer block: RMS norm, attention, RMS norm, SwiGLU; compute bound, with memory-bound steps to fuse."""
    tokens, fed = batch * seq, 3 * hidden * ffn
    x = be.randn(batch, seq, hidden, dtype=dtype)
    gain_1 = be.uniform(hidden, low=0.5, high=1.5, dtype=dtype)
    mixing = attention_weights(hidden, heads, kv_heads, dtype, be)
    gain_2 = be.uniform(hidden, low=0.5, high=1.5, dtype=dtype)
    feeding = mlp_weights(hidden, ffn, True, dtype, be)
    weights = (gain_1, *mixing, gain_2, *feeding)
    return Task(
        form(be, lambda torch: block, shared=block_in),
        (x, *weights, heads, kv_heads, causal),
        flops=attention_flops(batch, seq, hidden, heads, kv_heads, causal) + 2.0 * tokens * fed,
        bytes=size(dtype, 2 * tokens * hidden, 2 * hidden, attention_size(hidden, heads, kv_heads), fed),
        items=tokens,
        parameters=weights,
        tolerance=layer_tolerance(dtype),
    )
