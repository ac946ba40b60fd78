"""Small kernels that are compiled before a candidate needs Triton: one for each of the usual kinds of arguments.

Triton has a C compiler make a function for the launch of every kind, which takes longer than compiling a small kernel itself.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def from_one(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the sum of the first `n` numbers, at most BLOCK."""
    places = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + places, mask=places < n, other=0.0), 0))


@triton.jit  # type: ignore[untyped-decorator]
def from_two(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the sums of two numbers each, of the first `n`."""
    places = tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)
