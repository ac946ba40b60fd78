"""ResNet-50 as a classifier, in JAX, PyTorch and TensorFlow; images with channels last in TensorFlow, which its CPU code needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, NamedWeights, choose, chosen, picture, pixels
from steelyard.workloads.models.resnet import classify, residual_network, residual_shapes
from steelyard.workloads.ops.spaces import space_of

GAIN = 1.2


@dataclass(frozen=True)
class ResnetSizes:
    """Sizes of the model."""

    width: int = 64
    image: int = 224
    classes: int = 1000


_PRESETS = {"tiny": ResnetSizes(4, 32, 10), "small": ResnetSizes(16, 64, 100), "full": ResnetSizes()}
MODELS = {"microsoft/resnet-50": _PRESETS, "torchvision/resnet50": _PRESETS}


def create_model(
    framework: str, batch_size: int = 1, data_type: str = "fp32", model_name: str = "microsoft/resnet-50", preset: str = "full"
) -> Any:
    """The network with running statistics, which returns the scores of the classes."""
    sizes = chosen(MODELS, model_name, preset, batch_size)

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

        return JaxModel(draft, elsewhere(sizes, "jax"))

    def in_tensorflow() -> Any:
        from steelyard.workloads.models.families._tensorflow import tensorflow_model

        return tensorflow_model(draft, elsewhere(sizes, "tensorflow"))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch, "tensorflow": in_tensorflow}, "ResNet-50")


def elsewhere(sizes: ResnetSizes, framework: str) -> Any:
    """The function that `models/resnet` has for all frameworks but torch."""
    space, shapes = space_of(framework), residual_shapes(sizes.width, sizes.classes)
    return lambda get, images: classify(space, NamedWeights(get, shapes, space.last), images, False)
