"""ViT as a classifier of images, in JAX, and in PyTorch to compare it with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, NamedWeights, choose, chosen, picture, pixels
from steelyard.workloads.models.vit import look, vision_shapes, vision_transformer
from steelyard.workloads.ops.spaces import space_of


@dataclass(frozen=True)
class VitSizes:
    """Sizes of the model."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    ffn: int = 3072
    patch: int = 16
    image: int = 224
    classes: int = 1000


MODELS = {
    "google/vit-base-patch16-224": {
        "tiny": VitSizes(2, 32, 2, 64, 8, 32, 10), "small": VitSizes(4, 256, 4, 1024, 16, 64, 100), "full": VitSizes(),
    },
}  # fmt: skip


def create_model(
    framework: str, batch_size: int = 1, data_type: str = "fp32", model_name: str = "google/vit-base-patch16-224", preset: str = "full"
) -> Any:
    """The classifier, which returns the scores of the classes."""
    sizes = chosen(MODELS, model_name, preset, batch_size)

    def prepare(image: Array) -> tuple[Array, ...]:
        return (pixels(image, sizes.image, batch_size),)

    draft = Draft(picture(), prepare, {"model": model_name, "preset": preset, "batch_size": batch_size, **asdict(sizes)}, data_type)

    def in_torch() -> Any:
        from steelyard.workloads.models.families._torch import torch_model

        patches = (sizes.image // sizes.patch) ** 2
        return torch_model(
            draft, vision_transformer(patches, sizes.patch, sizes.layers, sizes.hidden, sizes.heads, sizes.ffn, sizes.classes)
        )

    def in_jax() -> Any:
        from steelyard.workloads.models.families._jax import JaxModel

        return JaxModel(draft, elsewhere(sizes, "jax"))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch}, "ViT")


def elsewhere(sizes: VitSizes, framework: str) -> Any:
    """The function that `models/vit` has for all frameworks but torch."""
    patches = (sizes.image // sizes.patch) ** 2
    space, shapes = space_of(framework), vision_shapes(patches, sizes.patch, sizes.layers, sizes.hidden, sizes.ffn, sizes.classes)
    return lambda get, images: look(space, NamedWeights(get, shapes, space.last), images, sizes.patch, sizes.layers, sizes.heads)
