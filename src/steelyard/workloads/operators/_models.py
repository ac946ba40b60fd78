"""The two networks that PARAM names as operators, each built without arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from steelyard.workloads.models.parts import Module
from steelyard.workloads.models.resnet import residual_network

CLASSES, WIDTH = 1000, 64
"""Sizes of ResNet-50 as it is usually trained."""


def alex_net() -> Module:
    """AlexNet in its form for one device: five convolutions, three dense layers, no local normalisation."""

    def convolution(channels: int, filters: int, kernel: int, stride: int = 1) -> list[Module]:
        return [nn.Conv2d(channels, filters, kernel, stride, padding=2 if kernel > 3 else 1), nn.ReLU()]

    def dense(features: int, out: int) -> list[Module]:
        return [nn.Dropout(), nn.Linear(features, out), nn.ReLU()]

    seen = [*convolution(3, 64, 11, 4), nn.MaxPool2d(3, 2), *convolution(64, 192, 5), nn.MaxPool2d(3, 2)]
    seen += [*convolution(192, 384, 3), *convolution(384, 256, 3), *convolution(256, 256, 3), nn.MaxPool2d(3, 2)]
    judged = [*dense(256 * 6 * 6, 4096), *dense(4096, 4096), nn.Linear(4096, CLASSES)]
    return nn.Sequential(*seen, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *judged)


MODELS: dict[str, Callable[[], Module]] = {
    "pytorch.model.alex_net": alex_net,
    "pytorch.model.resnet": partial(residual_network, WIDTH, CLASSES),
}
