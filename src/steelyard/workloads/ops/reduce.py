"""Reductions, scans and orderings along rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from steelyard.errors import NotApplicable
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.ops.cost import INDEX, Array, size

if TYPE_CHECKING:
    from steelyard.backends.base import Backend


def _sum(fn: Callable[..., Array], m: int, n: int, dtype: str, be: Backend) -> Task:
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, -1), flops=float(m * (n - 1)), bytes=size(dtype, m * n, m), items=m)


@workload(
    "op/sum",
    axes={"m": [512], "n": [1024], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    modes=["eval", "fwd", "bwd"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def sum(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Sum of each row; memory bound."""
    import torch

    return _sum(torch.sum, m, n, dtype, be)


@sum.on("numpy")
def _(m: int, n: int, dtype: str, be: Backend) -> Task:
    import numpy as np

    return _sum(np.sum, m, n, dtype, be)


def _cumsum(fn: Callable[..., Array], m: int, n: int, dtype: str, be: Backend) -> Task:
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, -1), flops=float(m * (n - 1)), bytes=size(dtype, m * n, m * n), items=m)


@workload(
    "op/cumsum",
    axes={"m": [128], "n": [1024], "dtype": ["fp32"]},
    tags=["op", "memory"],
    modes=["eval", "fwd", "bwd"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192}},
)
def cumsum(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Running sum of each row; memory bound, or bound by the chain of additions. In half precision long rows drift and are found wrong."""
    import torch

    return _cumsum(torch.cumsum, m, n, dtype, be)


@cumsum.on("numpy")
def _(m: int, n: int, dtype: str, be: Backend) -> Task:
    import numpy as np

    return _cumsum(np.cumsum, m, n, dtype, be)


def _topk(fn: Callable[..., Array], m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    if k > n:
        raise NotApplicable(f"a row of n={n} has no k={k} largest")
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, k), flops=0.0, bytes=size(dtype, m * n, m * k) + size(INDEX, m * k), items=m)


@workload(
    "op/topk",
    axes={"m": [64], "n": [1024], "k": [8], "dtype": ["fp32"]},
    tags=["op", "latency"],
    modes=["eval", "fwd", "bwd"],
    sizes={"small": {"m": 8, "n": 128}, "h200": {"m": 4096, "n": 131072, "k": 64, "dtype": "bf16"}},
)
def topk(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Largest k of each row in order; bound by comparisons. Places are made but not returned, since ties leave them open."""
    import torch

    def largest(x: Array, k: int) -> Array:
        return torch.topk(x, k)[0]

    return _topk(largest, m, n, k, dtype, be)


@topk.on("numpy")
def _(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    import numpy as np

    def largest(x: Array, k: int) -> Array:
        return np.sort(np.partition(x, x.shape[-1] - k, axis=-1)[..., x.shape[-1] - k :], axis=-1)[..., ::-1]

    return _topk(largest, m, n, k, dtype, be)


def _sort(fn: Callable[..., tuple[Array, Array]], m: int, n: int, dtype: str, be: Backend) -> Task:
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x,), flops=0.0, bytes=size(dtype, m * n, m * n) + size(INDEX, m * n), items=m)


@workload(
    "op/sort",
    axes={"m": [8], "n": [512], "dtype": ["fp32"]},
    tags=["op", "latency"],
    sizes={"small": {"m": 4, "n": 64}, "h200": {"m": 4096, "n": 16384, "dtype": "bf16"}},
)
def sort(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Stable sort of each row with places; bound by comparisons, or by passes over memory in a radix sort."""
    import torch

    def ordered(x: Array) -> tuple[Array, Array]:
        values, places = torch.sort(x, dim=-1, stable=True)
        return values, places

    return _sort(ordered, m, n, dtype, be)


@sort.on("numpy")
def _(m: int, n: int, dtype: str, be: Backend) -> Task:
    import numpy as np

    def ordered(x: Array) -> tuple[Array, Array]:
        places = np.argsort(x, axis=-1, kind="stable")
        return np.take_along_axis(x, places, axis=-1), places

    return _sort(ordered, m, n, dtype, be)
