"""EfficientNet in TensorFlow, from Keras: B7 in the preset full, and B0 on small images in the other presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from steelyard.workloads.models.families._shared import (
    Array,
    Draft,
    Prepared,
    choose,
    chosen,
    number_format,
    picture,
    pixels,
    seeded,
    uniform,
)

KINDS = {"gamma": "weight", "beta": "bias", "bias": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
"""Keras' names of the weights of one dimension, and ours."""
GIVEN = ("mean", "variance", "count")
"""Statistics of images in a layer, which stay as Keras sets them."""

CONTRAST = 8
"""The factor of the classifier's weights: with it answers differ by more than the tolerance."""
SETTLING = 96
"""Pixels at a side of the images that norms get their statistics from."""


@dataclass(frozen=True)
class EfficientSizes:
    """The variant, pixels at a side of its images, and number of classes."""

    variant: str = "EfficientNetB7"
    image: int = 600
    classes: int = 1000


MODELS = {
    "efficientnetb7": {
        "tiny": EfficientSizes("EfficientNetB0", 32, 10), "small": EfficientSizes("EfficientNetB0", 128, 100), "full": EfficientSizes(),
    },
}  # fmt: skip


def create_model(
    framework: str = "tensorflow", batch_size: int = 1, data_type: str = "fp32", model_name: str = "efficientnetb7", preset: str = "full"
) -> Any:
    """The classifier before its softmax, because the softmax of random weights is nearly uniform."""
    sizes = chosen(MODELS, model_name, preset, batch_size)

    def prepare(image: Array) -> tuple[Array, ...]:
        return (pixels(image, sizes.image, batch_size, plain=True).transpose(0, 2, 3, 1),)

    effective = {"model": model_name, "preset": preset, "batch_size": batch_size, **asdict(sizes)}
    draft = Draft(picture(), prepare, effective, data_type)
    return choose(framework, {"tensorflow": lambda: keras_model(draft, sizes)}, "EfficientNet")


def keras_model(draft: Draft, sizes: EfficientSizes) -> Any:
    """Keras' model with seeded weights; it normalises images itself."""
    import tensorflow as tf

    form = number_format(draft.data_type)
    variant = getattr(tf.keras.applications, sizes.variant)
    shape = (sizes.image, sizes.image, 3)
    policy = tf.keras.dtype_policies.DTypePolicy(form)
    before = tf.keras.config.dtype_policy()
    tf.keras.config.set_dtype_policy(policy)
    try:
        inner = variant(weights=None, input_shape=shape, classes=sizes.classes, classifier_activation=None)
    finally:
        tf.keras.config.set_dtype_policy(before)
    for item in inner.weights:
        layer, kind = item.path.rpartition("/")[::2]
        if kind not in GIVEN:
            item.assign(keras_weight(layer, kind, tuple(item.shape)))
    settle(inner)

    class KerasModel(Prepared, tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.draft, self.inner = draft, inner

        def forward(self, images: Array) -> Array:
            return inner(images, training=False)

        def array(self, value: Array) -> Array:
            return tf.constant(value, form if value.dtype.kind == "f" else None)

    return KerasModel()


def settle(inner: Any) -> None:
    """Give every norm the statistics of its inputs for a few images, as training would.

    With seeded statistics the signal fades or explodes in so many layers, and all images would get the same answer or none.
    """
    import numpy as np
    import tensorflow as tf

    image = pixels(picture(), SETTLING, 1, plain=True).transpose(0, 2, 3, 1)
    noise = 255 * uniform("efficientnet.settling", 2, SETTLING, SETTLING, 3)
    shown = np.concatenate((image, image[:, ::-1], image[:, :, ::-1], 255 - image, image / 2, image.transpose(0, 2, 1, 3), noise))
    known = {id(inner.input): tf.constant(shown, inner.compute_dtype)}
    for layer in inner.layers[1:]:
        given = [known[id(item)] for item in layer.input] if isinstance(layer.input, list) else known[id(layer.input)]
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            mean, variance = tf.nn.moments(tf.cast(given, tf.float32), (0, 1, 2))
            layer.moving_mean.assign(mean)
            layer.moving_variance.assign(variance)
        known[id(layer.output)] = layer(given)


def keras_weight(layer: str, kind: str, shape: tuple[int, ...]) -> Array:
    """A weight by its name, in Keras' order of axes; a depthwise convolution has one filter for each channel."""
    if len(shape) == 1:
        return seeded(f"{layer}.{KINDS[kind]}", shape)
    if len(shape) == 2:
        return CONTRAST * seeded(f"{layer}.weight", shape[::-1]).T
    height, width, channels, filters = shape
    if "dwconv" in layer:
        return seeded(f"{layer}.weight", (channels, 1, height, width)).transpose(2, 3, 0, 1)
    return seeded(f"{layer}.weight", (filters, channels, height, width)).transpose(2, 3, 1, 0)
