"""The parts that families in JAX are made of: plain functions of arrays and of weights by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, Prepared, number_format, seeded

Get = Callable[..., Array]
"""A weight by its name and shape."""
Net = Callable[..., Any]
"""A function of weights and inputs."""


class JaxModel(Prepared):
    """A family in JAX. `pure(weights, *inputs)` takes its weights as an argument, for programs that should not contain them as
    constants."""

    def __init__(self, draft: Draft, net: Net) -> None:
        import jax
        import jax.numpy as jnp

        self.draft, self.net = draft, net
        self.dtype = jnp.dtype(number_format(draft.data_type))
        self.shapes: dict[str, tuple[int, ...]] = {}

        def ask(name: str, *shape: int) -> Array:
            self.shapes[name] = shape
            return jnp.zeros(shape, self.dtype)

        inputs = self.preprocess(draft.raw)
        jax.eval_shape(partial(net, ask), *(inputs if isinstance(inputs, tuple) else (inputs,)))

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The weights, made when they are first needed."""
        import jax
        import jax.numpy as jnp

        with jax.ensure_compile_time_eval():
            return {name: jnp.asarray(seeded(name, shape, self.draft.gain), self.dtype) for name, shape in self.shapes.items()}

    def pure(self, weights: dict[str, Array], *inputs: Array) -> Any:
        """The answer as a function of weights and inputs."""
        return self.net(lambda name, *_: weights[name], *inputs)

    def forward(self, *inputs: Array) -> Any:
        """The answer."""
        return self.pure(self.weights, *inputs)

    def apply(self, *inputs: Array) -> Any:
        """The answer as a pure function, for export."""
        return self.pure(self.weights, *inputs)

    def array(self, value: Array) -> Array:
        """An array on the default device, floating numbers in the model's format."""
        import jax.numpy as jnp

        return jnp.asarray(value, self.dtype if value.dtype.kind == "f" else None)


def linear(get: Get, name: str, x: Array, width: int, *, bias: bool = True) -> Array:
    """A matrix product, and a bias if there is one."""
    import jax.numpy as jnp

    y = jnp.einsum("...i,oi->...o", x, get(f"{name}.weight", width, x.shape[-1]))
    return y + get(f"{name}.bias", width) if bias else y


def layer_norm(get: Get, name: str, x: Array, eps: float) -> Array:
    """Layer norm, computed in single precision as in all libraries."""
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * _inverse_root((centred**2).mean(-1, keepdims=True) + eps)
    return normal.astype(x.dtype) * get(f"{name}.weight", x.shape[-1]) + get(f"{name}.bias", x.shape[-1])


def rms_norm(get: Get, name: str, x: Array, eps: float) -> Array:
    """T5's norm: no mean is subtracted, and no bias added."""
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    return (wide * _inverse_root((wide**2).mean(-1, keepdims=True) + eps)).astype(x.dtype) * get(f"{name}.weight", x.shape[-1])


def _inverse_root(x: Array) -> Array:
    import jax

    return jax.lax.rsqrt(x)


def split(x: Array, heads: int) -> Array:
    """The last axis as heads and their width."""
    return x.reshape(*x.shape[:-1], heads, -1)


def attend(
    q: Array, k: Array, v: Array, *, scale: float | None = None, bias: Array | None = None, mask: Array | None = None, causal: bool = False
) -> Array:  # fmt: skip
    """Attention of [batch, place, head, width], with the heads joined again; softmax in single precision.

    JAX's own function needs products of fp16 that are summed in fp32, which JAX lacks on CPUs.
    """
    import jax
    import jax.numpy as jnp

    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias.astype(jnp.float32)
    if causal:
        past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        mask = past if mask is None else mask & past
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)
    return mixed.reshape(*mixed.shape[:2], -1)


def block(
    get: Get, name: str, x: Array, heads: int, ffn: int, eps: float, activation: Callable[[Array], Array],
    mixing: Callable[[Array, Array, Array], Array], *, norm_first: bool = True,
) -> Array:  # fmt: skip
    """A transformer block, with the names that `models.parts` gives its weights in PyTorch."""
    import jax.numpy as jnp

    width = x.shape[-1]

    def mix(x: Array) -> Array:
        q, k, v = jnp.split(linear(get, f"{name}.attention.qkv", x, 3 * width), 3, axis=-1)
        return linear(get, f"{name}.attention.out", mixing(split(q, heads), split(k, heads), split(v, heads)), width)

    def feed(x: Array) -> Array:
        return linear(get, f"{name}.feed.2", activation(linear(get, f"{name}.feed.0", x, ffn)), width)

    norm_1, norm_2 = (partial(layer_norm, get, f"{name}.norm_{number}", eps=eps) for number in (1, 2))
    if norm_first:
        x = x + mix(norm_1(x))
        return x + feed(norm_2(x))
    x = norm_1(x + mix(x))
    return norm_2(x + feed(x))


def conv(get: Get, name: str, x: Array, filters: int, kernel: int, stride: int = 1, *, bias: bool = True) -> Array:
    """A convolution of images with channels first."""
    import jax

    weight = get(f"{name}.weight", filters, x.shape[1], kernel, kernel)
    around = kernel // 2
    y = jax.lax.conv_general_dilated(
        x, weight, (stride, stride), ((around, around), (around, around)), dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y + get(f"{name}.bias", filters)[:, None, None] if bias else y


def group_norm(get: Get, name: str, x: Array, groups: int, eps: float) -> Array:
    """Group norm over the channels of a group and all positions, computed in single precision."""
    import jax.numpy as jnp

    wide = x.astype(jnp.float32).reshape(x.shape[0], groups, -1)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = (centred * _inverse_root((centred**2).mean(-1, keepdims=True) + eps)).reshape(x.shape).astype(x.dtype)
    return normal * get(f"{name}.weight", x.shape[1])[:, None, None] + get(f"{name}.bias", x.shape[1])[:, None, None]
