"""DLRM: a recommendation model with large tables and small products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.layers.conv import gradient_share
from steelyard.workloads.models.mlp import perceptron
from steelyard.workloads.models.parts import Module, chain_flops, count, model, model_task
from steelyard.workloads.ops.cost import INDEX, Array, divides, size


def recommender(bottom: tuple[int, ...], top: tuple[int, ...], tables: int, rows: int) -> Module:
    """A bottom MLP for numbers, a bag of rows from each table, all products of two of them, and a top MLP."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    lower, upper = perceptron(bottom), perceptron(top)

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = lower
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, bottom[-1], mode="sum") for _ in range(tables))
            self.top = upper
            row, column = torch.tril_indices(tables + 1, tables + 1, offset=-1)
            self.register_buffer("below", row * (tables + 1) + column, persistent=False)

        def forward(self, numbers: Array, index: Array) -> Array:
            known = F.relu(self.bottom(numbers))
            bags = [table(picks) for table, picks in zip(self.tables, index.unbind(0), strict=True)]
            features = torch.stack([known, *bags], dim=1)
            products = torch.bmm(features, features.mT).flatten(1).index_select(1, self.below)
            return self.top(torch.cat((known, products), dim=1)).squeeze(1)

    return Recommender()


def doubt_at(targets: Array) -> Callable[[Array], Array]:
    """Mean binary cross-entropy of logits against clicks, in single precision as training does it."""

    def loss(logits: Array) -> Array:
        import torch.nn.functional as F

        return F.binary_cross_entropy_with_logits(logits.float(), targets)

    return loss


@model(
    "model/dlrm",
    axes={
        "batch": [512], "numbers": [13], "tables": [8], "rows": [10000], "length": [4], "width": [32], "hidden": [256],
        "dtype": ["fp32"],
    },
    tags=["model", "memory"],
    sizes={
        "small": {"batch": 16, "tables": 3, "rows": 100, "length": 2, "width": 8, "hidden": 32},
        "h200": {
            "batch": 65536, "tables": 26, "rows": 400000, "length": 16, "width": 128, "hidden": 1024, "dtype": "bf16",
        },
    },
)  # fmt: skip
def dlrm(
    batch: int, numbers: int, tables: int, rows: int, length: int, width: int, hidden: int, dtype: str, be: Any,
    mode: str = "eval",
) -> Task:  # fmt: skip
    """Recommendation by embedding bags, pairwise products and two MLPs; memory bound by the tables, compute bound if those are small."""
    quarter = divides("quarters", 4, "hidden", hidden)
    bottom = (numbers, hidden // 2, quarter, width)
    top = (width + tables * (tables + 1) // 2, hidden, hidden, hidden // 2, quarter, 1)
    x = be.randn(batch, numbers, dtype=dtype)
    index = be.integers(0, rows, tables, batch, length)
    targets = be.integers(0, 2, batch, dtype="fp32")
    module = be.module(lambda: recommender(bottom, top, tables, rows), dtype)
    looked_up = tables * batch * length
    return model_task(
        module,
        (x, index),
        dtype,
        doubt_at(targets),
        flops=chain_flops(batch, *bottom) + chain_flops(batch, *top) + 2.0 * batch * (tables + 1) ** 2 * width,
        bytes=size(INDEX, looked_up) + size(dtype, batch * numbers, count(module) - tables * rows * width, looked_up * width, batch),
        items=batch,
        norm_tolerance=gradient_share(dtype, mode),
    )
