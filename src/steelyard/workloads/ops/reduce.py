"""Reductions, scans and orderings along rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.task import Task
from steelyard.workloads.ops.cost import INDEX, Array, size
from steelyard.workloads.ops.forms import Backend, form, operator


@operator(
    "op/sum",
    axes={"m": [512], "n": [1024], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192, "dtype": "bf16"}},
)
def sum(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Sum of each row; memory bound."""
    fn = form(be, lambda torch: torch.sum, lambda np: np.sum)
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, -1), flops=float(m * (n - 1)), bytes=size(dtype, m * n, m), items=m)


@operator(
    "op/cumsum",
    axes={"m": [128], "n": [1024], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={"small": {"m": 32, "n": 128}, "h200": {"m": 32768, "n": 8192}},
)
def cumsum(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Running sum of each row; memory bound, or bound by the chain of additions. In half precision long rows drift and come out wrong."""
    fn = form(be, lambda torch: torch.cumsum, lambda np: np.cumsum)
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, -1), flops=float(m * (n - 1)), bytes=size(dtype, m * n, m * n), items=m)


def largest(np: Any) -> Callable[..., Array]:
    """The largest in falling order, in numpy."""
    return lambda x, k: np.sort(np.partition(x, x.shape[-1] - k, axis=-1)[..., x.shape[-1] - k :], axis=-1)[..., ::-1]


@operator(
    "op/topk",
    axes={"m": [64], "n": [1024], "k": [8], "dtype": ["fp32"]},
    tags=["op", "latency"],
    sizes={"small": {"m": 8, "n": 128}, "h200": {"m": 4096, "n": 131072, "k": 64, "dtype": "bf16"}},
)
def topk(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Largest k of each row in order; bound by comparisons. Indices are computed but not returned, because ties make them ambiguous."""
    if k > n:
        raise NotApplicable(f"k={k} is more than the n={n} values of a row")
    fn = form(be, lambda torch: lambda x, k: torch.topk(x, k)[0], largest)
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x, k), flops=0.0, bytes=size(dtype, m * n, m * k) + size(INDEX, m * k), items=m)


def ordered(torch: Any) -> Callable[..., tuple[Array, Array]]:
    """Values and indices in torch, as a plain tuple."""

    def ordered(x: Array) -> tuple[Array, Array]:
        values, places = torch.sort(x, dim=-1, stable=True)
        return values, places

    return ordered


def ordered_numpy(np: Any) -> Callable[..., tuple[Array, Array]]:
    """Values and indices in numpy."""

    def ordered(x: Array) -> tuple[Array, Array]:
        places = np.argsort(x, axis=-1, kind="stable")
        return np.take_along_axis(x, places, axis=-1), places

    return ordered


@operator(
    "op/sort",
    modes=["eval"],
    axes={"m": [8], "n": [512], "dtype": ["fp32"]},
    tags=["op", "latency"],
    sizes={"small": {"m": 4, "n": 64}, "h200": {"m": 4096, "n": 16384, "dtype": "bf16"}},
)
def sort(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Stable sort of each row with indices; bound by comparisons, or by passes over memory in a radix sort."""
    fn = form(be, ordered, ordered_numpy)
    x = be.randn(m, n, dtype=dtype)
    return Task(fn, (x,), flops=0.0, bytes=size(dtype, m * n, m * n) + size(INDEX, m * n), items=m)
