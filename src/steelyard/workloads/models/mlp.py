"""A plain multi-layer perceptron: the smallest model, made of matrix products."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.layers.conv import gradient_share
from steelyard.workloads.models.carried import Shapes, Weights, affine, affine_shapes, build_model, count_of
from steelyard.workloads.models.parts import Module, chain_flops, model
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE
from steelyard.workloads.ops.spaces import Space


def perceptron(widths: tuple[int, ...]) -> Module:
    """Linear layers between these widths, with ReLU between them."""
    from torch import nn

    made: list[Module] = []
    for features, out in pairwise(widths):
        made += [nn.ReLU(), nn.Linear(features, out)]
    return nn.Sequential(*made[1:])


def perceptron_shapes(widths: tuple[int, ...]) -> Shapes:
    """The weights of the perceptron by their names in its module, where every second layer is a ReLU."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, (features, out) in enumerate(pairwise(widths)):
        found |= affine_shapes(str(2 * layer), out, features)
    return found


def classify_rows(space: Space, w: Weights, x: Array, layers: int) -> Array:
    """The perceptron in other frameworks."""
    for layer in range(layers):
        x = affine(space, w, str(2 * layer), space.relu(x) if layer else x)
    return x


@model(
    "model/mlp",
    axes={"batch": [64], "features": [512], "hidden": [1024], "depth": [3], "classes": [64], "dtype": ["fp32"]},
    tags=["model", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"batch": 8, "features": 32, "hidden": 64},
        "h200": {"batch": 8192, "features": 4096, "hidden": 8192, "depth": 8, "classes": 1024, "dtype": "bf16"},
    },
)
def mlp(batch: int, features: int, hidden: int, depth: int, classes: int, dtype: str, be: Any, mode: str = "eval") -> Task:
    """Perceptron of `depth` hidden layers with ReLU that classifies rows; compute bound, or bound by reading weights for few rows."""
    widths = (features, *[hidden] * depth, classes)
    x = be.randn(batch, features, dtype=dtype)
    targets = be.integers(0, classes, batch)
    shapes = perceptron_shapes(widths)
    return build_model(
        be,
        dtype,
        x,
        targets,
        lambda: perceptron(widths),
        shapes,
        lambda space, w, x: classify_rows(space, w, x, len(widths) - 1),
        flops=chain_flops(batch, *widths),
        bytes=size(dtype, batch * features, count_of(shapes), batch * classes),
        items=batch,
        norm_tolerance=gradient_share(dtype, mode),
    )
