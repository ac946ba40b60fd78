"""A product in four parts that are added up by atomic additions, in any order."""

import torch
import triton
import triton.language as tl

PROBLEM = "product"


@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, m, n, k, part, size: tl.constexpr):
    rows = tl.program_id(0) * size + tl.arange(0, size)
    columns = tl.program_id(1) * size + tl.arange(0, size)
    total = tl.zeros((size, size), tl.float32)
    for start in range(0, part, 32):
        inner = tl.program_id(2) * part + start + tl.arange(0, 32)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=(rows < m)[:, None], other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :], mask=(columns < n)[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    place = out_ptr + rows[:, None] * n + columns[None, :]
    tl.atomic_add(place, total, mask=(rows < m)[:, None] & (columns < n)[None, :])


def candidate(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.zeros(m, n, device=a.device)
    kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64), 4)](a, b, out, m, n, k, k // 4, size=64)
    return out
