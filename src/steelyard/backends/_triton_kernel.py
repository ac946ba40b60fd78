"""A small kernel that is compiled to have Triton's compiler loaded before a candidate needs it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def total(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the sum of the first `n` numbers, at most BLOCK."""
    places = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + places, mask=places < n, other=0.0), 0))
