"""A plain multi-layer perceptron: the smallest model there is, and all of it matrix products."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.layers.conv import gradient_share
from steelyard.workloads.models.parts import Module, chain_flops, count, model, model_task, surprise_at
from steelyard.workloads.ops.cost import size


def perceptron(widths: tuple[int, ...]) -> Module:
    """Linear layers between these widths, with ReLU between them."""
    from torch import nn

    made: list[Module] = []
    for features, out in pairwise(widths):
        made += [nn.ReLU(), nn.Linear(features, out)]
    return nn.Sequential(*made[1:])


@model(
    "model/mlp",
    axes={"batch": [64], "features": [512], "hidden": [1024], "depth": [3], "classes": [64], "dtype": ["fp32"]},
    tags=["model", "compute"],
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
    module = be.module(lambda: perceptron(widths), dtype)
    return model_task(
        module,
        (x,),
        dtype,
        surprise_at(targets),
        flops=chain_flops(batch, *widths),
        bytes=size(dtype, batch * features, count(module), batch * classes),
        items=batch,
        norm_tolerance=gradient_share(dtype, mode),
    )
