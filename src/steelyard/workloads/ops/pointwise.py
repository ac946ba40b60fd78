"""Elementwise operators: arithmetic costs next to nothing, so these show memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steelyard.errors import unknown
from steelyard.model.task import Task
from steelyard.workloads.ops.cost import Array, size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, operator
from steelyard.workloads.ops.spaces import in_numpy

GELU_FLOPS = {"none": 5.0, "tanh": 8.0}
SCALE = 3.0


def silu_of(x: Array) -> Array:
    """Sigmoid linear unit in numpy."""
    return in_numpy().silu(x)


@operator(
    "op/gelu",
    axes={"n": [131072], "approximate": ["none"], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    backend=EVERYWHERE,
    sizes={"small": {"n": 4096}, "h200": {"n": 2**28, "dtype": "bf16"}},
)
def gelu(n: int, approximate: str, dtype: str, be: Backend) -> Task:
    """Gaussian error linear unit; memory bound on a GPU, bound by the error function on a CPU."""
    if approximate not in GELU_FLOPS:
        raise unknown("approximation of gelu", approximate, GELU_FLOPS)
    fn = form(be, lambda torch: torch.nn.functional.gelu, shared=lambda space: space.gelu)
    x = be.randn(n, dtype=dtype)
    return Task(fn, (x,), {"approximate": approximate}, flops=GELU_FLOPS[approximate] * n, bytes=size(dtype, n, n), items=n)


def gated(torch: Any) -> Callable[..., Array]:
    """The gate in torch."""
    F = torch.nn.functional
    return lambda gate, up: F.silu(gate) * up


@operator(
    "op/silu_mul",
    axes={"m": [128], "n": [1024], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={"small": {"m": 16, "n": 128}, "h200": {"m": 8192, "n": 28672, "dtype": "bf16"}},
)
def silu_mul(m: int, n: int, dtype: str, be: Backend) -> Task:
    """Gate of a gated MLP, silu(gate) * up; memory bound, and two kernels unless fused."""
    fn = form(be, gated, lambda np: lambda gate, up: silu_of(gate) * up)
    gate = be.randn(m, n, dtype=dtype)
    up = be.randn(m, n, dtype=dtype)
    return Task(fn, (gate, up), flops=5.0 * m * n, bytes=size(dtype, m * n, m * n, m * n), items=m)


def fill(target: Array, source: Array) -> Array:
    """What `copy_` does, in numpy."""
    target[...] = source
    return target


@operator(
    "op/copy",
    modes=["eval"],
    axes={"n": [262144], "dtype": ["fp32"]},
    tags=["op", "memory", "smoke"],
    sizes={"small": {"n": 4096}, "h200": {"n": 2**28, "dtype": "bf16"}},
)
def copy(n: int, dtype: str, be: Backend) -> Task:
    """Copy into an existing buffer; memory bound, the simplest measure of bandwidth."""
    fn = form(be, lambda torch: lambda target, source: target.copy_(source), lambda np: fill)
    target = be.full(n, dtype=dtype)
    source = be.randn(n, dtype=dtype)
    return Task(fn, (target, source), flops=0.0, bytes=size(dtype, n, n), items=n)


def stream(np: Any) -> Callable[..., Array]:
    """The triad in numpy, in two passes because numpy has no function for it."""

    def stream(target: Array, b: Array, c: Array) -> Array:
        np.multiply(c, SCALE, out=target)
        return np.add(b, target, out=target)

    return stream


@operator(
    "op/triad",
    modes=["eval"],
    axes={"n": [262144], "dtype": ["fp32"]},
    tags=["op", "memory"],
    sizes={"small": {"n": 4096}, "h200": {"n": 2**28, "dtype": "bf16"}},
)
def triad(n: int, dtype: str, be: Backend) -> Task:
    """STREAM triad a = b + 3c into an existing buffer; memory bound."""
    fn = form(be, lambda torch: lambda target, b, c: torch.add(b, c, alpha=SCALE, out=target), stream)
    target = be.full(n, dtype=dtype)
    b = be.randn(n, dtype=dtype)
    c = be.randn(n, dtype=dtype)
    return Task(fn, (target, b, c), flops=2.0 * n, bytes=size(dtype, n, n, n), items=n)
