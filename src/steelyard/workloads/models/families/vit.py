"""ViT as a classifier of images, in JAX, and in PyTorch to compare it with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from steelyard.workloads.models.families._shared import Array, Draft, choose, chosen, picture, pixels
from steelyard.workloads.models.vit import EPS, vision_transformer


@dataclass(frozen=True)
class VitSizes:
    """How large it is."""

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
    """The classifier, which answers the scores of the classes."""
    sizes = chosen(MODELS, model_name, preset)

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

        return JaxModel(draft, partial(jax_scores, sizes))

    return choose(framework, {"jax": in_jax, "pytorch": in_torch}, "ViT")


def jax_scores(sizes: VitSizes, get: Any, images: Array) -> Array:
    """The modules of `models/vit` by the names that they have there."""
    import jax
    import jax.numpy as jnp

    from steelyard.workloads.models.families._jax import attend, block, conv, layer_norm, linear

    x = conv(get, "cut", images, sizes.hidden, sizes.patch, sizes.patch, padding=0)
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
    summary = jnp.broadcast_to(get("summary", 1, sizes.hidden), (x.shape[0], 1, sizes.hidden))
    x = jnp.concatenate((summary, x), axis=1)
    x = x + get("positions", x.shape[1], sizes.hidden)
    activation = partial(jax.nn.gelu, approximate=False)
    for number in range(sizes.layers):
        x = block(get, f"blocks.{number}", x, sizes.heads, sizes.ffn, EPS, activation, attend)
    return linear(get, "classify", layer_norm(get, "norm", x[:, 0], EPS), sizes.classes)
