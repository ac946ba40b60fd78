"""ResNet-50: convolutions of many shapes, in the bottleneck layout 3-4-6-3."""

from __future__ import annotations

from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task
from steelyard.workloads.layers.conv import gradient_share
from steelyard.workloads.models.carried import STATISTICS, Shapes, Weights, affine, affine_shapes, build_model, count_of
from steelyard.workloads.models.parts import Module, model
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE
from steelyard.workloads.ops.spaces import Space

COLOURS = 3
EXPANSION = 4
STAGES = ((3, 1, 1), (4, 2, 2), (6, 4, 2), (3, 8, 2))
REDUCTION = 32
FEWEST_VALUES = 8
FIRST_GAIN = 0.03
EPS = 1e-5
STEM = 4
"""Parts before the first block."""
SHORT_GRADIENTS = {"fp16": 0.2, "bf16": 0.4}


def deep_gradient_share(dtype: str, mode: str) -> float | None:
    """As `gradient_share`, wider: after fifty norms over a small batch correct code is off by up to 0.09 in fp16 and 0.25 in bf16."""
    share = gradient_share(dtype, mode)
    return share if share is None else SHORT_GRADIENTS.get(canonical(dtype), share)


def shrink(side: int, stride: int) -> int:
    """Side of the output of a convolution or pooling padded by half its odd kernel."""
    return (side - 1) // stride + 1


def residual_network(width: int, classes: int) -> Module:
    """The network; a stage halves the image in its first 3x3 convolution, as usual since 2016."""
    import torch.nn.functional as F
    from torch import nn

    def convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> Module:
        return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, inner: int, stride: int) -> None:
            super().__init__()
            self.branch = nn.Sequential(
                convolution(channels, inner, 1), nn.BatchNorm2d(inner), nn.ReLU(),
                convolution(inner, inner, 3, stride), nn.BatchNorm2d(inner), nn.ReLU(),
                convolution(inner, EXPANSION * inner, 1), nn.BatchNorm2d(EXPANSION * inner),
            )  # fmt: skip
            wider = stride > 1 or channels != EXPANSION * inner
            adapted = (convolution(channels, EXPANSION * inner, 1, stride), nn.BatchNorm2d(EXPANSION * inner))
            self.shortcut = nn.Sequential(*adapted) if wider else nn.Identity()

        def forward(self, x: Array) -> Array:
            return F.relu(self.branch(x) + self.shortcut(x))

    made = [convolution(COLOURS, width, 7, 2), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for blocks, factor, stride in STAGES:
        for index in range(blocks):
            made.append(Bottleneck(channels, factor * width, stride if index == 0 else 1))
            channels = EXPANSION * factor * width
    return nn.Sequential(*made, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def residual_shapes(width: int, classes: int) -> Shapes:
    """The weights of the network and the statistics of its norms, in the order of its module."""
    found: dict[str, tuple[int, ...]] = {}

    def layer(name: str, at: int, filters: int, inputs: int, kernel: int) -> None:
        found[f"{name}{at}.weight"] = (filters, inputs, kernel, kernel)
        found.update({f"{name}{at + 1}.{kind}": (filters,) for kind in ("weight", "bias", *STATISTICS)})

    layer("", 0, width, COLOURS, 7)
    channels, place = width, STEM
    for blocks, factor, stride in STAGES:
        inner, out = factor * width, EXPANSION * factor * width
        for index in range(blocks):
            for at, filters, inputs, kernel in ((0, inner, channels, 1), (3, inner, inner, 3), (6, out, inner, 1)):
                layer(f"{place}.branch.", at, filters, inputs, kernel)
            if (stride > 1 and index == 0) or channels != out:
                layer(f"{place}.shortcut.", 0, out, channels, 1)
            channels, place = out, place + 1
    return {**found, **affine_shapes(str(place + 2), classes, channels)}


def classify(space: Space, w: Weights, x: Array, batch_statistics: bool) -> Array:
    """The network in other frameworks."""

    def layer(x: Array, name: str, at: int, kernel: int, stride: int = 1) -> Array:
        x = space.convolve(x, w[f"{name}{at}.weight"], stride, kernel // 2)
        gain, bias, mean, spread = (space.wide(w[f"{name}{at + 1}.{kind}"]) for kind in ("weight", "bias", *STATISTICS))
        wide = space.wide(x)
        if batch_statistics:
            mean = space.mean(wide, (0, *space.pixels))
            spread = space.mean((wide - space.per_channel(mean)) ** 2, (0, *space.pixels))
        scale = gain * space.rsqrt(spread + EPS)
        return space.like(wide * space.per_channel(scale) + space.per_channel(bias - mean * scale), x)

    x = space.pool(space.relu(layer(x, "", 0, 7, 2)), 3, 2, 1)
    place = STEM
    for blocks, _, stride in STAGES:
        for index in range(blocks):
            step = stride if index == 0 else 1
            inner = space.relu(layer(x, f"{place}.branch.", 0, 1))
            inner = space.relu(layer(inner, f"{place}.branch.", 3, 3, step))
            beside = layer(x, f"{place}.shortcut.", 0, 1, step) if f"{place}.shortcut.0.weight" in w else x
            x = space.relu(layer(inner, f"{place}.branch.", 6, 1) + beside)
            place += 1
    return affine(space, w, str(place + 2), space.mean(x, space.pixels))


def residual_flops(batch: int, image: int, width: int, classes: int) -> float:
    """Every convolution: the pixels it makes times what each one reads; and the classifier."""
    side = shrink(image, 2)
    total = side * side * width * COLOURS * 7 * 7
    side, channels = shrink(side, 2), width
    for blocks, factor, stride in STAGES:
        inner, out = factor * width, EXPANSION * factor * width
        for index in range(blocks):
            after = shrink(side, stride) if index == 0 else side
            total += side * side * channels * inner + after * after * (inner * inner * 3 * 3 + inner * out)
            total += after * after * channels * out if index == 0 else 0
            side, channels = after, out
    return 2.0 * batch * (total + channels * classes)


def check_statistics(values: int) -> None:
    """Refuse norms over too few values."""
    if values < FEWEST_VALUES:
        raise NotApplicable(
            f"the last norms would take their statistics from {values} values, and {FEWEST_VALUES} are needed",
            do=f"use a larger batch, or images larger than {REDUCTION}",
        )


def set_to_train(module: Module) -> None:
    """Normalise by the statistics of the batch; the last gain of each branch begins near 0, as in recipes for training.

    At 1 each block amplifies rounding errors of the gradient, and in a short format nothing could be checked.
    """
    import torch

    module.train()
    with torch.no_grad():
        for block in module.children():
            if hasattr(block, "branch"):
                block.branch[-1].weight.fill_(FIRST_GAIN)


@model(
    "model/resnet50",
    axes={"batch": [4], "image": [64], "width": [16], "classes": [100], "dtype": ["fp32"]},
    tags=["model", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"batch": 8, "image": 32, "width": 4, "classes": 10},
        "h200": {"batch": 256, "image": 224, "width": 64, "classes": 1000, "dtype": "bf16"},
    },
)
def resnet50(batch: int, image: int, width: int, classes: int, dtype: str, be: Any, mode: str = "eval") -> Task:
    """ResNet-50 on square images; compute bound, its norms and activations memory bound unless fused.

    Norms use running statistics in mode eval and those of the batch in all others.
    """
    x = be.randn(batch, COLOURS, image, image, dtype=dtype)
    targets = be.integers(0, classes, batch)
    training = mode != "eval"
    if training:
        check_statistics(batch * shrink(image, REDUCTION) ** 2)
    shapes = residual_shapes(width, classes)
    return build_model(
        be,
        dtype,
        x,
        targets,
        lambda: residual_network(width, classes),
        shapes,
        lambda space, w, x: classify(space, w, x, training),
        first={"branch.7.weight": FIRST_GAIN} if training else {},
        ready=set_to_train if training else lambda module: None,
        flops=residual_flops(batch, image, width, classes),
        bytes=size(dtype, batch * COLOURS * image * image, count_of(shapes), batch * classes),
        items=batch,
        norm_tolerance=deep_gradient_share(dtype, mode),
    )
