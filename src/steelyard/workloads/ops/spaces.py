"""The few functions that our operators, layers and models use, for each framework but torch.

This does not hide frameworks: a function written with a Space is plain arithmetic on their own arrays, and calls what a user
of the framework would call. Torch has separate code, because its compilers and quantizers need to see modules.
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
    """One framework's functions.

    `matmul` and `scores` take the second matrix transposed if the third argument is true. `wide` converts to single precision at least
    and `like` to another array's format: norms and the scores of attention are computed so, as in all libraries. Images have their
    channels second, or last if `last` is true, and kernels have the layout of their framework.
    """

    matmul: Callable[..., Array]
    scores: Callable[..., Array]
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
    like: Callable[[Array, Array], Array]
    convolve: Callable[[Array, Array, int, int], Array]
    pool: Callable[[Array, int, int, int], Array]
    last: bool = False

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """An affine map of the last axis by a transposed weight."""
        made = self.matmul(x, weight, True)
        return made if bias is None else made + bias

    def layer_norm(self, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        """Layer norm over the last axis."""
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
        found = self.scores(q, k, True) / q.shape[-1] ** 0.5
        return self.matmul(self.like(self.softmax(self.masked(found) if causal else found, -1), v), v)

    @property
    def pixels(self) -> tuple[int, int]:
        """The axes of an image's height and width."""
        return (1, 2) if self.last else (2, 3)

    def per_channel(self, values: Array) -> Array:
        """One value for each channel of an image, to be used with all its pixels."""
        return values if self.last else self.reshape(values, (-1, 1, 1))

    def laid_out(self, images: Array) -> Array:
        """Images with their channels second, in the layout of the framework."""
        return self.transpose(images, (0, 2, 3, 1)) if self.last else images

    def kernel(self, weight: Array) -> Array:
        """The weights of a convolution, outputs first and inputs second, in the layout of the framework."""
        return self.transpose(weight, (2, 3, 1, 0)) if self.last else weight

    def in_row(self, images: Array) -> Array:
        """The pixels of images as a sequence of channels."""
        if self.last:
            return self.reshape(images, (images.shape[0], -1, images.shape[3]))
        return self.transpose(self.reshape(images, (*images.shape[:2], -1)), (0, 2, 1))


def space_of(name: str) -> Space:
    """The functions of a framework, which is imported here."""
    return {"numpy": in_numpy, "jax": in_jax, "tensorflow": in_tensorflow}[name]()


@functools.cache
def in_numpy() -> Space:
    """numpy's functions, exact in the format of the data: the reference for the other frameworks."""
    import numpy as np

    erf = np.vectorize(math.erf, otypes=[float])

    def matmul(a: Array, b: Array, turned: bool = False) -> Array:
        return np.matmul(a, np.swapaxes(b, -1, -2) if turned else b)

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
        matmul=matmul, scores=matmul, softmax=softmax, gelu=gelu, silu=lambda x: x / (1 + np.exp(-x)), relu=lambda x: np.maximum(x, 0),
        tanh=np.tanh, rsqrt=lambda x: 1 / np.sqrt(x), mean=lambda x, axis, keep=False: x.mean(axis=axis, keepdims=keep),
        reshape=np.reshape, transpose=np.transpose, take=lambda table, places: table[places], concat=np.concatenate,
        spread=np.broadcast_to, repeat=np.repeat, masked=masked, wide=lambda x: x, like=lambda x, other: x, convolve=convolve,
        pool=lambda x, kernel, stride, pad: windows(x, kernel, stride, pad, -np.inf).max(axis=(-1, -2)),
    )  # fmt: skip


@functools.cache
def in_jax() -> Space:
    """JAX's functions."""
    import jax
    import jax.numpy as jnp

    def matmul(a: Array, b: Array, turned: bool = False) -> Array:
        return jnp.matmul(a, jnp.swapaxes(b, -1, -2) if turned else b)

    def scores(q: Array, k: Array, turned: bool) -> Array:
        wide = jnp.promote_types(q.dtype, jnp.float32)
        return jnp.matmul(q, jnp.swapaxes(k, -1, -2) if turned else k, preferred_element_type=wide)

    def masked(x: Array) -> Array:
        return jnp.where(jnp.tril(jnp.ones(x.shape[-2:], dtype=bool)), x, -jnp.inf)

    def convolve(x: Array, weight: Array, stride: int, pad: int) -> Array:
        return jax.lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))

    def pool(x: Array, kernel: int, stride: int, pad: int) -> Array:
        around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, kernel, kernel), (1, 1, stride, stride), around)

    return Space(
        matmul=matmul, scores=scores, softmax=jax.nn.softmax,
        gelu=lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"), silu=jax.nn.silu, relu=jax.nn.relu,
        tanh=jnp.tanh, rsqrt=jax.lax.rsqrt, mean=lambda x, axis, keep=False: x.mean(axis=axis, keepdims=keep), reshape=jnp.reshape,
        transpose=jnp.transpose, take=lambda table, places: table[places], concat=jnp.concatenate, spread=jnp.broadcast_to,
        repeat=jnp.repeat, masked=masked, wide=lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)),
        like=lambda x, other: x.astype(other.dtype), convolve=convolve, pool=pool,
    )  # fmt: skip


@functools.cache
def in_tensorflow() -> Space:
    """TensorFlow's own operators, without Keras; its kernels on the CPU want channels last."""
    import tensorflow as tf

    def matmul(a: Array, b: Array, turned: bool = False) -> Array:
        if len(b.shape) > 2 or len(a.shape) == 2:
            return tf.matmul(a, b, transpose_b=turned)
        made = tf.matmul(tf.reshape(a, (-1, a.shape[-1])), b, transpose_b=turned)
        return tf.reshape(made, (*a.shape[:-1], made.shape[-1]))

    def wide(x: Array) -> Array:
        return x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)

    def masked(x: Array) -> Array:
        seen = tf.linalg.band_part(tf.ones(x.shape[-2:], dtype=tf.bool), -1, 0)
        return tf.where(seen, x, tf.constant(-math.inf, x.dtype))

    def padded(x: Array, pad: int, fill: float) -> Array:
        return tf.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill) if pad else x

    return Space(
        matmul=matmul, scores=lambda q, k, turned: tf.matmul(wide(q), wide(k), transpose_b=turned), softmax=tf.nn.softmax,
        gelu=lambda x, approximate="none": tf.nn.gelu(x, approximate=approximate == "tanh"), silu=tf.nn.silu, relu=tf.nn.relu,
        tanh=tf.tanh, rsqrt=tf.math.rsqrt, mean=lambda x, axis, keep=False: tf.reduce_mean(x, axis, keep), reshape=tf.reshape,
        transpose=tf.transpose, take=tf.gather, concat=tf.concat, spread=tf.broadcast_to,
        repeat=lambda x, times, axis: tf.repeat(x, times, axis), masked=masked, wide=wide, like=lambda x, other: tf.cast(x, other.dtype),
        convolve=lambda x, weight, stride, pad: tf.nn.conv2d(padded(x, pad, 0), weight, stride, "VALID"),
        pool=lambda x, kernel, stride, pad: tf.nn.max_pool2d(padded(x, pad, x.dtype.min), kernel, stride, "VALID"), last=True,
    )  # fmt: skip
