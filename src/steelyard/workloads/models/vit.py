"""ViT: an encoder that reads an image as a sequence of patches."""

from __future__ import annotations

from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.models.carried import (
    Shapes,
    Weights,
    affine,
    affine_shapes,
    blocks_shapes,
    build_model,
    count_of,
    norm,
    norm_shapes,
    through_blocks,
)
from steelyard.workloads.models.parts import Module, block_class, block_flops, model
from steelyard.workloads.ops.cost import Array, divides, size
from steelyard.workloads.ops.forms import EVERYWHERE
from steelyard.workloads.ops.spaces import Space

COLOURS = 3
EPS = 1e-6


def vision_transformer(patches: int, patch: int, layers: int, hidden: int, heads: int, ffn: int, classes: int) -> Module:
    """Patches by a convolution, a class token before them, pre-norm blocks, and a classifier on that token."""
    import torch
    from torch import nn

    block = block_class()

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = nn.Conv2d(COLOURS, hidden, patch, patch)
            self.summary = nn.Parameter(torch.zeros(1, hidden))
            self.positions = nn.Parameter(torch.zeros(patches + 1, hidden))
            self.blocks = nn.Sequential(*(block(hidden, heads, ffn, EPS) for _ in range(layers)))
            self.norm = nn.LayerNorm(hidden, EPS)
            self.classify = nn.Linear(hidden, classes)

        def forward(self, images: Array) -> Array:
            x = self.cut(images).flatten(2).mT
            x = torch.cat((self.summary.expand(len(x), 1, -1), x), dim=1) + self.positions
            return self.classify(self.norm(self.blocks(x)[:, 0]))

    return Vision()


def vision_shapes(patches: int, patch: int, layers: int, hidden: int, ffn: int, classes: int) -> Shapes:
    """The weights of the transformer, in the order of its module."""
    own = {"summary": (1, hidden), "positions": (patches + 1, hidden)}
    cut = {"cut.weight": (hidden, COLOURS, patch, patch), "cut.bias": (hidden,)}
    return {**own, **cut, **blocks_shapes(layers, hidden, ffn), **norm_shapes("norm", hidden), **affine_shapes("classify", classes, hidden)}


def look(space: Space, w: Weights, images: Array, patch: int, layers: int, heads: int) -> Array:
    """The transformer in other frameworks."""
    x = space.in_row(space.convolve(images, w["cut.weight"], patch, 0)) + w["cut.bias"]
    summary = space.spread(w["summary"], (x.shape[0], 1, x.shape[-1]))
    x = through_blocks(space, w, space.concat((summary, x), 1) + w["positions"], layers, heads, EPS)
    return affine(space, w, "classify", norm(space, w, "norm", x[:, 0], EPS))


@model(
    "model/vit",
    axes={
        "batch": [2], "image": [64], "patch": [8], "layers": [2], "hidden": [256], "heads": [4], "ffn": [1024], "classes": [100],
        "dtype": ["fp32"],
    },
    tags=["model", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"batch": 1, "image": 16, "patch": 4, "layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "classes": 10},
        "h200": {
            "batch": 256, "image": 224, "patch": 16, "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "classes": 1000,
            "dtype": "bf16",
        },
    },
)  # fmt: skip
def vit(
    batch: int, image: int, patch: int, layers: int, hidden: int, heads: int, ffn: int, classes: int, dtype: str, be: Any
) -> Task:  # fmt: skip
    """Vision transformer on square images; compute bound, with memory-bound norms and activations to fuse."""
    patches = divides("patch", patch, "image", image) ** 2
    pixels = batch * COLOURS * image * image
    block = block_flops(batch, patches + 1, hidden, heads, ffn, causal=False)
    x = be.randn(batch, COLOURS, image, image, dtype=dtype)
    targets = be.integers(0, classes, batch)
    shapes = vision_shapes(patches, patch, layers, hidden, ffn, classes)
    return build_model(
        be,
        dtype,
        x,
        targets,
        lambda: vision_transformer(patches, patch, layers, hidden, heads, ffn, classes),
        shapes,
        lambda space, w, x: look(space, w, x, patch, layers, heads),
        flops=layers * block + 2.0 * (pixels * hidden + batch * hidden * classes),
        bytes=size(dtype, pixels, count_of(shapes), batch * classes),
        items=batch,
    )
