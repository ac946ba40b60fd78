"""Reads and writes at places known only from data; bytes count each place that is looked up, not the whole table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import INDEX, Array, size
from steelyard.workloads.ops.forms import Backend, form, operator, trainable

MET = {"bf16": (3e-2, 3e-2), "fp16": (1e-2, 5e-3)}
"""If several values are added in one place, short formats round after each: sums that nearly cancel keep the error of their parts."""


@operator(
    "op/gather",
    axes={"m": [512], "n": [1024], "k": [128], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"m": 16, "n": 64, "k": 16}, "h200": {"m": 8192, "n": 32768, "k": 8192, "dtype": "bf16"}},
)
def gather(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Picks k places of each row; bound by memory latency, because every element is a separate load."""
    fn = form(
        be,
        lambda torch: lambda x, index: torch.gather(x, -1, index),
        lambda np: lambda x, index: np.take_along_axis(x, index, axis=-1),
    )
    x = be.randn(m, n, dtype=dtype)
    index = be.integers(0, n, m, k)
    return Task(fn, (x, index), flops=0.0, bytes=size(INDEX, m * k) + size(dtype, m * k, m * k), items=m)


def add_at(np: Any) -> Callable[..., Array]:
    """What torch.scatter_add does, in numpy."""

    def add_at(base: Array, index: Array, source: Array) -> Array:
        out = base.copy()
        np.add.at(out, (np.arange(len(base))[:, None], index), source)
        return out

    return add_at


@operator(
    "op/scatter_add",
    axes={"m": [256], "n": [512], "k": [128], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={"small": {"m": 16, "n": 64, "k": 16}, "h200": {"m": 8192, "n": 32768, "k": 8192, "dtype": "bf16"}},
)
def scatter_add(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Adds values at k places of each row of a copy; bound by memory latency and, on a GPU, by atomics."""
    fn = form(be, lambda torch: lambda base, index, source: torch.scatter_add(base, -1, index, source), add_at)
    base = be.randn(m, n, dtype=dtype)
    index = be.integers(0, n, m, k)
    source = be.randn(m, k, dtype=dtype)
    moved = size(dtype, m * n, m * k, m * n) + size(INDEX, m * k)
    return Task(fn, (base, index, source), flops=float(m * k), bytes=moved, items=m, tolerance=MET.get(dtype))


@trainable(
    "op/embedding",
    axes={"rows": [16384], "width": [128], "tokens": [1024], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={
        "small": {"rows": 256, "width": 32, "tokens": 64},
        "h200": {"rows": 131072, "width": 2048, "tokens": 131072, "dtype": "bf16"},
    },
)
def embedding(rows: int, width: int, tokens: int, dtype: str, be: Backend) -> Task:
    """Looks up one row of a table per token; memory bound."""
    fn = form(be, lambda torch: torch.nn.functional.embedding, lambda np: lambda index, table: table[index])
    index = be.integers(0, rows, tokens)
    table = be.randn(rows, width, dtype=dtype)
    moved = size(INDEX, tokens) + size(dtype, tokens * width, tokens * width)
    return Task(fn, (index, table), flops=0.0, bytes=moved, items=tokens, parameters=(table,))


def pool(torch: Any) -> Callable[..., Array]:
    """Sums of bags in torch."""
    F = torch.nn.functional
    return lambda index, table: F.embedding_bag(index, table, mode="sum")


@trainable(
    "op/embedding_bag",
    axes={"rows": [16384], "width": [128], "bags": [128], "length": [16], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={
        "small": {"rows": 256, "width": 32, "bags": 16, "length": 4},
        "h200": {"rows": 2**21, "width": 128, "bags": 65536, "length": 64, "dtype": "bf16"},
    },
)
def embedding_bag(rows: int, width: int, bags: int, length: int, dtype: str, be: Backend) -> Task:
    """Sums the rows of a table that each bag names; memory bound, most of the work of recommendation models."""
    fn = form(be, pool, lambda np: lambda index, table: table[index].sum(axis=1))
    index = be.integers(0, rows, bags, length)
    table = be.randn(rows, width, dtype=dtype)
    moved = size(INDEX, bags * length) + size(dtype, bags * length * width, bags * width)
    return Task(fn, (index, table), flops=float(bags * (length - 1) * width), bytes=moved, items=bags, parameters=(table,))
