"""Dense matrix products, which are most of a model's arithmetic."""

from __future__ import annotations

import math

from steelyard.model.task import Task
from steelyard.workloads.ops.cost import size
from steelyard.workloads.ops.forms import EVERYWHERE, Backend, form, operator, trainable
from steelyard.workloads.ops.triton_kernels import by_triton


@operator(
    "op/matmul",
    axes={"m": [256], "n": [256], "k": [256], "dtype": ["fp32"]},
    tags=["op", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={"small": {"m": 64, "n": 64, "k": 64}, "h200": {"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}},
)
def matmul(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Matrix product (m,k)x(k,n); compute bound unless one side is thin."""
    fn = form(be, lambda torch: torch.matmul, shared=lambda space: space.matmul)
    a = be.randn(m, k, dtype=dtype)
    b = be.randn(k, n, dtype=dtype, scale=k**-0.5)
    return Task(fn, (a, b), flops=2.0 * m * n * k, bytes=size(dtype, m * k, k * n, m * n), items=m)


@operator(
    "op/bmm",
    axes={"batch": [16], "m": [64], "n": [64], "k": [64], "dtype": ["fp32"]},
    tags=["op", "compute"],
    backend=EVERYWHERE,
    sizes={"small": {"batch": 4, "m": 32, "n": 32, "k": 32}, "h200": {"batch": 512, "m": 1024, "n": 1024, "k": 128, "dtype": "bf16"}},
)
def bmm(batch: int, m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Batch of matrix products; compute bound for square matrices, memory bound for small ones."""
    fn = form(be, lambda torch: torch.bmm, shared=lambda space: space.matmul)
    a = be.randn(batch, m, k, dtype=dtype)
    b = be.randn(batch, k, n, dtype=dtype, scale=k**-0.5)
    return Task(fn, (a, b), flops=2.0 * batch * m * n * k, bytes=size(dtype, batch * (m * k + k * n + m * n)), items=batch)


@trainable(
    "op/addmm",
    axes={"m": [256], "n": [256], "k": [256], "dtype": ["fp32"]},
    tags=["op", "compute"],
    sizes={"small": {"m": 64, "n": 64, "k": 64}, "h200": {"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}},
)
def addmm(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Matrix product added to a full matrix; compute bound, and one more matrix to read than matmul."""
    fn = form(be, lambda torch: torch.addmm, lambda np: lambda c, a, b: c + a @ b)
    c = be.randn(m, n, dtype=dtype)
    a = be.randn(m, k, dtype=dtype)
    b = be.randn(k, n, dtype=dtype, scale=k**-0.5)
    return Task(fn, (c, a, b), flops=2.0 * m * n * k, bytes=size(dtype, m * n, m * k, k * n, m * n), items=m, parameters=(b,))


def affine(be: Backend, dtype: str, rows: tuple[int, ...], features: int, out: int) -> Task:
    """An affine map of the last axis by a transposed weight, for the operator and for the layer."""
    fn = form(be, lambda torch: torch.nn.functional.linear, shared=lambda space: space.linear)
    tokens = math.prod(rows)
    x = be.randn(*rows, features, dtype=dtype)
    weight = be.randn(out, features, dtype=dtype, scale=features**-0.5)
    bias = be.randn(out, dtype=dtype)
    moved = size(dtype, tokens * features, out * features, out, tokens * out)
    return Task(fn, (x, weight, bias), flops=2.0 * tokens * features * out, bytes=moved, items=tokens, parameters=(weight, bias))


@trainable(
    "op/linear",
    axes={"tokens": [32], "features": [512], "out": [512], "dtype": ["fp32"]},
    tags=["op", "compute", "smoke"],
    backend=EVERYWHERE,
    sizes={
        "small": {"tokens": 8, "features": 64, "out": 64},
        "h200": {"tokens": 8192, "features": 8192, "out": 8192, "dtype": "bf16"},
    },
)
def linear(tokens: int, features: int, out: int, dtype: str, be: Backend) -> Task:
    """Affine map of tokens by a transposed weight; compute bound for many tokens, bound by reading the weight for few."""
    return affine(be, dtype, (tokens,), features, out)


@matmul.variant("triton", backends=["torch"], fresh=True)
def _(task: Task, be: Backend) -> Task:
    """Matrix product by an autotuned Triton kernel; fp32 follows torch's setting for TF32."""
    return by_triton(task, be, "matmul")
