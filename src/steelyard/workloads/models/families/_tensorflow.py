"""The parts that families in TensorFlow are made of: plain functions of tensors and of weights by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, Prepared, number_format, seeded

Get = Callable[..., Array]
Net = Callable[..., Any]


def tensorflow_model(draft: Draft, net: Net) -> Any:
    """A family in TensorFlow: a module with its weights as variables. They are made while the graph is traced, so nothing is computed."""
    import tensorflow as tf

    form = tf.as_dtype(number_format(draft.data_type))

    class TensorFlowModel(Prepared, tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.draft = draft
            self.weights: dict[str, Array] = {}
            inputs = self.preprocess(draft.raw)
            given = inputs if isinstance(inputs, tuple) else (inputs,)
            tf.function(self.forward).get_concrete_function(*(tf.TensorSpec(item.shape, item.dtype) for item in given))

        def weight(self, name: str, *shape: int, turned: tuple[int, ...] | None = None) -> Array:
            if name not in self.weights:
                value = seeded(name, shape, draft.gain)
                with tf.init_scope():
                    self.weights[name] = tf.Variable(tf.cast(value if turned is None else value.transpose(turned), form), trainable=False)
            return self.weights[name]

        def forward(self, *inputs: Array) -> Any:
            return net(self.weight, *inputs)

        def array(self, value: Array) -> Array:
            return tf.constant(value, form if value.dtype.kind == "f" else None)

    return TensorFlowModel()


def linear(get: Get, name: str, x: Array, width: int, *, bias: bool = True) -> Array:
    """A matrix product, and a bias if there is one."""
    import tensorflow as tf

    rank, depth = len(x.shape), x.shape[-1]
    flat = tf.reshape(x, (-1, depth))
    y = tf.linalg.matmul(flat, get(f"{name}.weight", width, depth), transpose_b=True)
    y = y + get(f"{name}.bias", width) if bias else y
    return y if rank == 2 else tf.reshape(y, (*x.shape[:-1], width))


def layer_norm(get: Get, name: str, x: Array, eps: float) -> Array:
    """Layer norm, computed in single precision."""
    import tensorflow as tf

    wide = tf.cast(x, tf.float32)
    mean, variance = tf.nn.moments(wide, -1, keepdims=True)
    normal = tf.cast((wide - mean) * tf.math.rsqrt(variance + eps), x.dtype)
    return normal * get(f"{name}.weight", x.shape[-1]) + get(f"{name}.bias", x.shape[-1])


def rms_norm(get: Get, name: str, x: Array, eps: float) -> Array:
    """T5's norm: no mean is subtracted, and no bias added."""
    import tensorflow as tf

    wide = tf.cast(x, tf.float32)
    normal = wide * tf.math.rsqrt(tf.reduce_mean(wide * wide, -1, keepdims=True) + eps)
    return tf.cast(normal, x.dtype) * get(f"{name}.weight", x.shape[-1])


def split(x: Array, heads: int) -> Array:
    """The last axis as heads and their width."""
    import tensorflow as tf

    return tf.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def attend(q: Array, k: Array, v: Array, *, scale: float | None = None, bias: Array | None = None, mask: Array | None = None) -> Array:
    """Attention of [batch, place, head, width], with the heads joined again; softmax in single precision."""
    import tensorflow as tf

    scores = tf.cast(tf.einsum("bqhd,bkhd->bhqk", q, k), tf.float32) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores += tf.cast(bias, tf.float32)
    if mask is not None:
        scores = tf.where(mask, scores, tf.float32.min)
    mixed = tf.einsum("bhqk,bkhd->bqhd", tf.cast(tf.nn.softmax(scores), v.dtype), v)
    return tf.reshape(mixed, (*q.shape[:2], q.shape[2] * v.shape[3]))


def block(
    get: Get, name: str, x: Array, heads: int, ffn: int, eps: float, activation: Callable[[Array], Array],
    mixing: Callable[[Array, Array, Array], Array], *, norm_first: bool = True,
) -> Array:  # fmt: skip
    """A transformer block, with the names that `models.parts` gives its weights in PyTorch."""
    import tensorflow as tf

    width = x.shape[-1]

    def mix(x: Array) -> Array:
        q, k, v = tf.split(linear(get, f"{name}.attention.qkv", x, 3 * width), 3, axis=-1)
        return linear(get, f"{name}.attention.out", mixing(split(q, heads), split(k, heads), split(v, heads)), width)

    def feed(x: Array) -> Array:
        return linear(get, f"{name}.feed.2", activation(linear(get, f"{name}.feed.0", x, ffn)), width)

    norm_1, norm_2 = (partial(layer_norm, get, f"{name}.norm_{number}", eps=eps) for number in (1, 2))
    if norm_first:
        x = x + mix(norm_1(x))
        return x + feed(norm_2(x))
    x = norm_1(x + mix(x))
    return norm_2(x + feed(x))
