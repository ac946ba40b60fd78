"""A Triton kernel that is launched for half of the rows."""

import torch
import triton
import triton.language as tl

PROBLEM = "rows"
EXPECT = {"stale"}


@triton.jit
def kernel(x_ptr, out_ptr, n, size: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, size)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + columns, e / tl.sum(e, 0), mask=columns < n)


def candidate(x):
    out = torch.empty_like(x)
    kernel[(len(x) // 2,)](x, out, x.shape[1], size=triton.next_power_of_2(x.shape[1]))
    return out
