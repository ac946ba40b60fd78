"""The few functions that our operators, layers and models are made of, by the names of each framework but torch.

This is no layer that hides frameworks: a form written with a Space is plain arithmetic on their own arrays, and calls what a user
of the framework would call. Torch has modules, which its compilers and quantizers need to see, so its forms are its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steelyard.workloads.ops.cost import Array

ROOT_2, ROOT_2_PI, CUBIC = math.sqrt(2), math.sqrt(2 / math.pi), 0.044715
SPACES = ("numpy", "jax", "tensorflow")


@dataclass(frozen=True)
class Space:
    """One framework's functions; images have their channels second and kernels their outputs first, as in torch.

    `wide` gives single precision at least and `like` another array's format: norms and softmax are computed so, as all libraries do.
    """

    matmul: Callable[[Array, Array], Array]
    softmax: Callable[[Array, int], Array]
    gelu: Callable[..., Array]
    silu: Callable[[Array], Array]
    relu: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    rsqrt: Callable[[Array], Array]
    mean: Callable[..., Array]
    reshape: Callable[[Array, Sequence[int]], Array]
    transpose: Callable[[Array, Sequence[int]], Array]
    take: Callable[[Array, Array], Array]
    concat: Callable[[Sequence[Array], int], Array]
    spread: Callable[[Array, Sequence[int]], Array]
    repeat: Callable[[Array, int, int], Array]
    masked: Callable[[Array], Array]
    wide: Callable[[Array], Array]
    scores: Callable[[Array, Array], Array]
    like: Callable[[Array, Array], Array]
    convolve: Callable[[Array, Array, int, int], Array]
    pool: Callable[[Array, int, int, int], Array]

    def turned(self, x: Array) -> Array:
        """The last two axes swapped."""
        axes = list(range(len(x.shape)))
        return self.transpose(x, [*axes[:-2], axes[-1], axes[-2]])

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """An affine map of the last axis by a transposed weight."""
        made = self.matmul(x, self.turned(weight))
        return made if bias is None else made + bias

    def layer_norm(self, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        """Over the last axis."""
        wide = self.wide(x)
        apart = wide - self.mean(wide, -1, True)
        return self.like(apart * self.rsqrt(self.mean(apart * apart, -1, True) + eps) * self.wide(gain) + self.wide(bias), x)

    def rms_norm(self, x: Array, gain: Array, eps: float) -> Array:
        """Root-mean-square norm over the last axis."""
        wide = self.wide(x)
        return self.like(wide * self.rsqrt(self.mean(wide * wide, -1, True) + eps) * self.wide(gain), x)

    def attend(self, q: Array, k: Array, v: Array, causal: bool) -> Array:
        """Attention with the whole score matrix; keys and values are repeated for each group of heads."""
        group = q.shape[1] // k.shape[1]
        k, v = (self.repeat(item, group, 1) if group > 1 else item for item in (k, v))
        found = self.scores(q, self.turned(k)) / q.shape[-1] ** 0.5
        return self.matmul(self.like(self.softmax(self.masked(found) if causal else found, -1), v), v)


def space_of(name: str) -> Space:
    """The functions of a framework, which is imported here."""
    return {"numpy": in_numpy, "jax": in_jax, "tensorflow": in_tensorflow}[name]()


@functools.cache
def in_numpy() -> Space:
    """numpy's, exact in the format of the data: the reference of all others."""
    import numpy as np

    erf = np.vectorize(math.erf, otypes=[float])

    def softmax(x: Array, axis: int) -> Array:
        raised = np.exp(x - x.max(axis=axis, keepdims=True))
        return raised / raised.sum(axis=axis, keepdims=True)

    def gelu(x: Array, approximate: str = "none") -> Array:
        if approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(ROOT_2_PI * (x + CUBIC * x**3)))
        return 0.5 * x * (1 + erf(x / ROOT_2).astype(x.dtype))

    def masked(x: Array) -> Array:
        return np.where(np.tril(np.ones(x.shape[-2:], dtype=bool)), x, x.dtype.type(-np.inf))

    def windows(x: Array, kernel: int, stride: int, pad: int, fill: float) -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
        return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]

    def convolve(x: Array, weight: Array, stride: int, pad: int) -> Array:
        return np.moveaxis(np.tensordot(windows(x, weight.shape[-1], stride, pad, 0.0), weight, ([1, 4, 5], [1, 2, 3])), -1, 1)

    return Space(
        np.matmul, softmax, gelu, lambda x: x / (1 + np.exp(-x)), lambda x: np.maximum(x, 0), np.tanh, lambda x: 1 / np.sqrt(x),
        lambda x, axis, keep=False: x.mean(axis=axis, keepdims=keep), np.reshape, np.transpose, lambda table, places: table[places],
        np.concatenate, np.broadcast_to, np.repeat, masked, lambda x: x, np.matmul, lambda x, other: x, convolve,
        lambda x, kernel, stride, pad: windows(x, kernel, stride, pad, -np.inf).max(axis=(-1, -2)),
    )  # fmt: skip


@functools.cache
def in_jax() -> Space:
    """JAX's; scores of attention are summed and softened in single precision at least, as its own attention does."""
    import jax
    import jax.numpy as jnp

    def wide(x: Array) -> Array:
        return x.astype(jnp.promote_types(x.dtype, jnp.float32))

    def scores(q: Array, k: Array) -> Array:
        return jnp.matmul(q, k, preferred_element_type=jnp.promote_types(q.dtype, jnp.float32))

    def masked(x: Array) -> Array:
        return jnp.where(jnp.tril(jnp.ones(x.shape[-2:], dtype=bool)), x, -jnp.inf)

    def convolve(x: Array, weight: Array, stride: int, pad: int) -> Array:
        return jax.lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def pool(x: Array, kernel: int, stride: int, pad: int) -> Array:
        around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, kernel, kernel), (1, 1, stride, stride), around)

    return Space(
        jnp.matmul, jax.nn.softmax, lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"), jax.nn.silu,
        jax.nn.relu, jnp.tanh, jax.lax.rsqrt, lambda x, axis, keep=False: x.mean(axis=axis, keepdims=keep), jnp.reshape, jnp.transpose,
        lambda table, places: table[places], jnp.concatenate, jnp.broadcast_to, jnp.repeat, masked, wide, scores,
        lambda x, other: x.astype(other.dtype), convolve, pool,
    )  # fmt: skip


@functools.cache
def in_tensorflow() -> Space:
    """TensorFlow's own operators, without Keras."""
    import tensorflow as tf

    def wide(x: Array) -> Array:
        return x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)

    def masked(x: Array) -> Array:
        seen = tf.linalg.band_part(tf.ones(x.shape[-2:], dtype=tf.bool), -1, 0)
        return tf.where(seen, x, tf.constant(-math.inf, x.dtype))

    def last(x: Array, pad: int, fill: float) -> Array:
        """Channels last, as TensorFlow's kernels on the CPU have it, and padded."""
        return tf.pad(tf.transpose(x, (0, 2, 3, 1)), ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)

    def convolve(x: Array, weight: Array, stride: int, pad: int) -> Array:
        made = tf.nn.conv2d(last(x, pad, 0), tf.transpose(weight, (2, 3, 1, 0)), stride, "VALID")
        return tf.transpose(made, (0, 3, 1, 2))

    def pool(x: Array, kernel: int, stride: int, pad: int) -> Array:
        return tf.transpose(tf.nn.max_pool2d(last(x, pad, x.dtype.min), kernel, stride, "VALID"), (0, 3, 1, 2))

    return Space(
        tf.matmul, tf.nn.softmax, lambda x, approximate="none": tf.nn.gelu(x, approximate=approximate == "tanh"), tf.nn.silu,
        tf.nn.relu, tf.tanh, tf.math.rsqrt, lambda x, axis, keep=False: tf.reduce_mean(x, axis, keep), tf.reshape, tf.transpose,
        lambda table, places: tf.gather(table, places), tf.concat, tf.broadcast_to, lambda x, times, axis: tf.repeat(x, times, axis),
        masked, wide, lambda q, k: tf.matmul(wide(q), wide(k)), lambda x, other: tf.cast(x, other.dtype), convolve, pool,
    )  # fmt: skip
