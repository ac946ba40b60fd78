"""The feed-forward half of a transformer block, plain (GELU) or gated (SwiGLU)."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import layer_tolerance
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, trainable
from steelyard.workloads.ops.spaces import Space


def feed(x: Array, w_up: Array, w_down: Array, w_gate: Array | None = None) -> Array:
    """The layer in torch; weights are arguments so that the harness can move them."""
    import torch.nn.functional as F

    up = F.linear(x, w_up)
    lively = F.gelu(up) if w_gate is None else F.silu(F.linear(x, w_gate)) * up
    return F.linear(lively, w_down)


def feed_in(space: Space) -> Callable[..., Array]:
    """The layer in other frameworks."""

    def feed(x: Array, w_up: Array, w_down: Array, w_gate: Array | None = None) -> Array:
        up = space.linear(x, w_up)
        lively = space.gelu(up) if w_gate is None else space.silu(space.linear(x, w_gate)) * up
        return space.linear(lively, w_down)

    return feed


def mlp_weights(hidden: int, ffn: int, gated: bool, dtype: str, be: Backend) -> tuple[Array, ...]:
    """The weights up, down and, if gated, gate, in the order in which `feed` takes them."""
    w_up = be.randn(ffn, hidden, dtype=dtype, scale=hidden**-0.5)
    w_down = be.randn(hidden, ffn, dtype=dtype, scale=ffn**-0.5)
    return (w_up, w_down, be.randn(ffn, hidden, dtype=dtype, scale=hidden**-0.5)) if gated else (w_up, w_down)


@trainable(
    "layer/mlp",
    axes={"batch": [1], "seq": [64], "hidden": [256], "ffn": [768], "gated": [True], "dtype": ["fp32"]},
    tags=["layer", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={
        "small": {"seq": 16, "hidden": 64, "ffn": 128},
        "h200": {"batch": 4, "seq": 4096, "hidden": 4096, "ffn": 14336, "dtype": "bf16"},
    },
)
def mlp(batch: int, seq: int, hidden: int, ffn: int, gated: bool, dtype: str, be: Backend) -> Task:
    """Feed-forward layer, SwiGLU if gated and GELU if not; compute bound, its activation memory bound unless fused."""
    fn = form(be, lambda torch: feed, shared=feed_in)
    tokens, weights = batch * seq, (3 if gated else 2) * hidden * ffn
    x = be.randn(batch, seq, hidden, dtype=dtype)
    feeding = mlp_weights(hidden, ffn, gated, dtype, be)
    moved = size(dtype, 2 * tokens * hidden, weights)
    return Task(
        fn, (x, *feeding), flops=2.0 * tokens * weights, bytes=moved, items=tokens, parameters=feeding, tolerance=layer_tolerance(dtype)
    )
