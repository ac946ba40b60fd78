"""ResNet-50: convolutions of many shapes, in the bottleneck layout 3-4-6-3."""

from __future__ import annotations

from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task
from steelyard.workloads.layers.conv import gradient_share
from steelyard.workloads.models.parts import Module, count, model, model_task, surprise_at
from steelyard.workloads.ops.cost import Array, size

COLOURS = 3
EXPANSION = 4
STAGES = ((3, 1, 1), (4, 2, 2), (6, 4, 2), (3, 8, 2))
REDUCTION = 32
FEWEST_VALUES = 8
FIRST_GAIN = 0.03
SHORT_GRADIENTS = {"fp16": 0.2, "bf16": 0.4}


def deep_gradient_share(dtype: str, mode: str) -> float | None:
    """Behind fifty norms over a small batch correct code is off by up to 0.09 in fp16 and 0.25 in bf16."""
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


def set_to_train(module: Module, values: int) -> None:
    """Normalise by the statistics of the batch; the last gain of each branch begins near 0, as recipes for training have it.

    At 1 each block amplifies what rounding does to the gradient, and in a short format there would be nothing left to check.
    """
    import torch

    if values < FEWEST_VALUES:
        raise NotApplicable(
            f"the last norms would take their statistics from {values} values, and {FEWEST_VALUES} are needed",
            do=f"a larger batch, or images larger than {REDUCTION}",
        )
    module.train()
    with torch.no_grad():
        for block in module.children():
            if hasattr(block, "branch"):
                block.branch[-1].weight.fill_(FIRST_GAIN)


@model(
    "model/resnet50",
    axes={"batch": [4], "image": [64], "width": [16], "classes": [100], "dtype": ["fp32"]},
    tags=["model", "compute"],
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
    module = be.module(lambda: residual_network(width, classes), dtype)
    if mode != "eval":
        set_to_train(module, batch * shrink(image, REDUCTION) ** 2)
    return model_task(
        module,
        (x,),
        dtype,
        surprise_at(targets),
        flops=residual_flops(batch, image, width, classes),
        bytes=size(dtype, batch * COLOURS * image * image, count(module), batch * classes),
        items=batch,
        norm_tolerance=deep_gradient_share(dtype, mode),
    )
