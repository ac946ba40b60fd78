"""Matrix products of eight-bit formats, as quantized models compute them: the most that such kernels reach."""

from __future__ import annotations

from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.ops.cost import size
from steelyard.workloads.ops.forms import Backend, form

SIZES = {"small": {"m": 64, "n": 64, "k": 64}, "h200": {"m": 8192, "n": 8192, "k": 8192}}
FLOAT8_GPU = (8, 9)
"""The lowest compute capability of NVIDIA GPUs that multiply float8."""


@workload(
    "op/int_matmul",
    axes={"m": [256], "n": [256], "k": [256], "dtype": ["int8"]},
    tags=["op", "compute"],
    sizes=SIZES,
    backend=("torch", "numpy"),
)
def int_matmul(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Product of int8 rows and a transposed int8 weight, summed in int32; compute bound unless one side is thin."""
    if dtype != "int8":
        raise NotApplicable(f"op/int_matmul multiplies int8, not {dtype}; use op/matmul")
    if be.device != "cpu" and (m <= 16 or n % 8 or k % 8):
        raise NotApplicable(f"int8 products on {be.device} need m above 16, and n and k as multiples of 8")
    wide = form(be, lambda torch: lambda a, b: torch._int_mm(a, b.t()), lambda np: lambda a, b: a.astype(np.int32) @ b.T.astype(np.int32))
    a, b = be.integers(-128, 128, m, k, dtype=dtype), be.integers(-128, 128, n, k, dtype=dtype)
    return Task(wide, (a, b), flops=2.0 * m * n * k, bytes=size(dtype, m * k, n * k) + size("int32", m * n), items=m)


@workload(
    "op/scaled_matmul",
    axes={"m": [256], "n": [256], "k": [256], "dtype": ["fp8e4m3"]},
    tags=["op", "compute"],
    sizes=SIZES,
)
def scaled_matmul(m: int, n: int, k: int, dtype: str, be: Backend) -> Task:
    """Product of float8 rows and a transposed float8 weight, one scale each, written in bf16; compute bound unless one side is thin."""
    import torch

    if dtype not in ("fp8e4m3", "fp8e5m2"):
        raise NotApplicable(f"op/scaled_matmul multiplies float8, not {dtype}; use op/matmul")
    if be.device != "cuda" or torch.cuda.get_device_capability() < FLOAT8_GPU:
        raise Unsupported("float8 products need an NVIDIA GPU of compute capability 8.9 or newer")
    if n % 16 or k % 16:
        raise NotApplicable("float8 products need n and k as multiples of 16")
    a, b = be.randn(m, k, dtype=dtype), be.randn(n, k, dtype="fp8e4m3", scale=k**-0.5)
    one = be.full(1, value=1.0, dtype="fp32").reshape(())
    scales = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    return Task(
        lambda a, b: torch._scaled_mm(a, b.t(), **scales), (a, b),
        flops=2.0 * m * n * k, bytes=size(dtype, m * k, n * k) + size("bf16", m * n), items=m,
        reference=lambda: a.float() @ b.float().t(),
    )  # fmt: skip
