"""Models in numpy, JAX and TensorFlow: functions, and the weights of the torch module, drawn in the same order.

A model's weights have the names of its torch module, which a test checks. Every framework gets the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import model_tolerance
from steelyard.workloads.models.parts import Module, model_task, surprise_at
from steelyard.workloads.ops.cost import Array
from steelyard.workloads.ops.spaces import SPACES, Space, space_of

Shapes = Mapping[str, tuple[int, ...]]
Weights = Mapping[str, Array]
Forward = Callable[[Space, Weights, Array], Array]
KERNEL_AXES = 4
STATISTICS = {"running_mean": 0.0, "running_var": 1.0}
"""The statistics that norms over a batch have besides their weights, with their first values."""


def count_of(shapes: Shapes) -> int:
    """Number of weights."""
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(tuple(STATISTICS)))


def draw(be: Any, shapes: Shapes, dtype: str, first: Mapping[str, float]) -> dict[str, Array]:
    """Seeded weights in order of names, as `module` of the torch backend draws them; `first` has other values by the ends of names."""
    space, found = space_of(be.name), {}
    known = {"bias": 0.0, "weight": 1.0, **STATISTICS, **first}
    for name, shape in shapes.items():
        if len(shape) >= 2:
            drawn = be.randn(*shape, dtype=dtype, scale=(math.prod(shape) / shape[0]) ** -0.5)
            found[name] = space.kernel(drawn) if len(shape) == KERNEL_AXES else drawn
        else:
            ending = max((end for end in known if name.endswith(end)), key=len)
            found[name] = be.full(*shape, value=known[ending], dtype=dtype)
    return found


def build_model(
    be: Any,
    dtype: str,
    x: Array,
    targets: Array,
    make: Callable[[], Module],
    shapes: Shapes,
    forward: Forward,
    first: Mapping[str, float] | None = None,
    ready: Callable[[Module], None] = lambda module: None,
    **known: Any,
) -> Task:
    """A model on its input in the framework of a backend: the module that `make` returns for torch, else `forward`."""
    if be.name not in SPACES:
        module = be.module(make, dtype)
        ready(module)
        return model_task(module, (x,), dtype, surprise_at(targets), **known)
    space, weights = space_of(be.name), draw(be, shapes, dtype, first or {})
    trained = tuple(item for name, item in weights.items() if not name.endswith(tuple(STATISTICS)))
    images = space.laid_out(x) if len(x.shape) == KERNEL_AXES else x
    loss = surprise_in_jax(targets) if be.name == "jax" else None

    def call(x: Array, weights: Weights) -> Array:
        return forward(space, weights, x)

    return Task(call, (images, weights), parameters=trained, loss=loss, tolerance=model_tolerance(dtype), **known)


def surprise_in_jax(targets: Array) -> Callable[[Array], Array]:
    """Mean cross-entropy of logits against these classes, in single precision at least, as training does it."""

    def loss(logits: Array) -> Array:
        import jax
        import jax.numpy as jnp

        flat = logits.reshape(-1, logits.shape[-1])
        chosen = jax.nn.log_softmax(flat.astype(jnp.promote_types(flat.dtype, jnp.float32)))
        return -jnp.take_along_axis(chosen, targets.reshape(-1, 1), 1).mean()

    return loss


def affine_shapes(name: str, out: int, features: int) -> dict[str, tuple[int, ...]]:
    """A linear layer with its bias."""
    return {f"{name}.weight": (out, features), f"{name}.bias": (out,)}


def norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    """A layer norm."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def blocks_shapes(layers: int, hidden: int, ffn: int) -> dict[str, tuple[int, ...]]:
    """All blocks of a transformer."""
    found: dict[str, tuple[int, ...]] = {}
    for at in (f"blocks.{layer}" for layer in range(layers)):
        found |= norm_shapes(f"{at}.norm_1", hidden)
        found |= affine_shapes(f"{at}.attention.qkv", 3 * hidden, hidden) | affine_shapes(f"{at}.attention.out", hidden, hidden)
        found |= norm_shapes(f"{at}.norm_2", hidden)
        found |= affine_shapes(f"{at}.feed.0", ffn, hidden) | affine_shapes(f"{at}.feed.2", hidden, ffn)
    return found


def affine(space: Space, w: Weights, name: str, x: Array) -> Array:
    """A linear layer by its name."""
    return space.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def norm(space: Space, w: Weights, name: str, x: Array, eps: float) -> Array:
    """A layer norm by its name."""
    return space.layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], eps)


def mixed(space: Space, w: Weights, name: str, x: Array, heads: int, causal: bool) -> Array:
    """Attention of a block, whose projections are in one matrix."""
    batch, seq, hidden = x.shape
    parts = space.transpose(space.reshape(affine(space, w, f"{name}.qkv", x), (batch, seq, 3, heads, hidden // heads)), (2, 0, 3, 1, 4))
    found = space.transpose(space.attend(parts[0], parts[1], parts[2], causal), (0, 2, 1, 3))
    return affine(space, w, f"{name}.out", space.reshape(found, (batch, seq, hidden)))


def through_blocks(
    space: Space,
    w: Weights,
    x: Array,
    layers: int,
    heads: int,
    eps: float,
    *,
    causal: bool = False,
    norm_first: bool = True,
    approximate: str = "none",
) -> Array:
    """The blocks of a transformer: norms before each half and the sum after it, or the sum first and norms on it."""
    for at in (f"blocks.{layer}" for layer in range(layers)):

        def feed(x: Array, at: str = at) -> Array:
            return affine(space, w, f"{at}.feed.2", space.gelu(affine(space, w, f"{at}.feed.0", x), approximate))

        if norm_first:
            x = x + mixed(space, w, f"{at}.attention", norm(space, w, f"{at}.norm_1", x, eps), heads, causal)
            x = x + feed(norm(space, w, f"{at}.norm_2", x, eps))
        else:
            x = norm(space, w, f"{at}.norm_1", x + mixed(space, w, f"{at}.attention", x, heads, causal), eps)
            x = norm(space, w, f"{at}.norm_2", x + feed(x), eps)
    return x
