"""A Triton kernel that tries several sizes of block at its first call."""

import torch
import triton
import triton.language as tl

PROBLEM = "scaled"


@triton.autotune([triton.Config({"size": size}) for size in (512, 1024, 2048)], key=["n"])
@triton.jit
def kernel(x_ptr, out_ptr, n, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, tl.maximum(x, 0.0) * 1.5 + x * 0.25, mask=place < n)


def candidate(x):
    out = torch.empty_like(x)
    kernel[lambda given: (triton.cdiv(x.numel(), given["size"]),)](x, out, x.numel())
    return out
