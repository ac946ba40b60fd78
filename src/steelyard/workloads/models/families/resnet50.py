"""ResNet-50 as a classifier, in JAX, PyTorch and TensorFlow; images with channels last in TensorFlow, which its processor code needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, picture, pixels
from steelyard.workloads.models.resnet import EXPANSION, STAGES, residual_network

GAIN = 1.2


@dataclass(frozen=True)
class ResnetSizes:
    """How large it is."""

    width: int = 64
    image: int = 224
    classes: int = 1000


_PRESETS = {"tiny": ResnetSizes(4, 32, 10), "small": ResnetSizes(16, 64, 100), "full": ResnetSizes()}
MODELS = {"microsoft/resnet-50": _PRESETS, "torchvision/resnet50": _PRESETS}


def create_model(
    framework: str, batch_size: int = 1, data_type: str = "fp32", model_name: str = "microsoft/resnet-50", preset: str = "full"
) -> Any:
    """The network with running statistics, which answers the scores of the classes."""
    sizes = chosen(MODELS, model_name, preset)

    def prepare(image: Array) -> tuple[Array, ...]:
        made = pixels(image, sizes.image, batch_size)
        return (made.transpose(0, 2, 3, 1) if framework == "tensorflow" else made,)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, **asdict(sizes)}
    draft = Draft(picture(), prepare, effective, data_type, GAIN)

    def in_torch() -> Any:
        from steelyard.workloads.models.families._torch import torch_model

        return torch_model(draft, residual_network(sizes.width, sizes.classes))

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, partial(jax_scores, sizes))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, partial(tensorflow_scores, sizes))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch, "tensorflow": in_tensorflow}, "ResNet-50")


def jax_scores(sizes: ResnetSizes, get: Any, x: Array) -> Array:
    """The modules of `models/resnet` by the names that they have there."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import batch_norm, conv, linear

    def layer(name: str, place: int, x: Array, filters: int, kernel: int, stride: int = 1) -> Array:
        return batch_norm(get, f"{name}{place + 1}", conv(get, f"{name}{place}", x, filters, kernel, stride, bias=False))

    x = jax.nn.relu(layer("", 0, x, sizes.width, 7, 2))
    edges = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = jax.lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), edges)
    number = 4
    for blocks, factor, first in STAGES:
        inner = factor * sizes.width
        for index in range(blocks):
            stride, name = first if index == 0 else 1, f"{number}.branch."
            y = jax.nn.relu(layer(name, 0, x, inner, 1))
            y = jax.nn.relu(layer(name, 3, y, inner, 3, stride))
            y = layer(name, 6, y, EXPANSION * inner, 1)
            x = jax.nn.relu(y + (layer(f"{number}.shortcut.", 0, x, EXPANSION * inner, 1, stride) if index == 0 else x))
            number += 1
    return linear(get, f"{number + 2}", x.mean((2, 3)), sizes.classes)


def tensorflow_scores(sizes: ResnetSizes, get: Any, x: Array) -> Array:
    """The same in TensorFlow."""
    import tensorflow as tf

    from steelyard.workloads.models.families._tensorflow import batch_norm, conv, linear

    def layer(name: str, place: int, x: Array, filters: int, kernel: int, stride: int = 1) -> Array:
        return batch_norm(get, f"{name}{place + 1}", conv(get, f"{name}{place}", x, filters, kernel, stride, bias=False))

    x = tf.nn.relu(layer("", 0, x, sizes.width, 7, 2))
    edged = tf.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=x.dtype.min)
    x = tf.nn.max_pool2d(edged, 3, 2, "VALID")
    number = 4
    for blocks, factor, first in STAGES:
        inner = factor * sizes.width
        for index in range(blocks):
            stride, name = first if index == 0 else 1, f"{number}.branch."
            y = tf.nn.relu(layer(name, 0, x, inner, 1))
            y = tf.nn.relu(layer(name, 3, y, inner, 3, stride))
            y = layer(name, 6, y, EXPANSION * inner, 1)
            x = tf.nn.relu(y + (layer(f"{number}.shortcut.", 0, x, EXPANSION * inner, 1, stride) if index == 0 else x))
            number += 1
    return linear(get, f"{number + 2}", tf.reduce_mean(x, (1, 2)), sizes.classes)
