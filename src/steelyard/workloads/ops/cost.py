"""The least that a task must move, so that every variant of a workload declares the same figure.

Declared bytes count each input read once and each output written once in its own format; intermediates and write-allocate
traffic are left out. Declared flops count a multiply-add as 2 and any other elementary function as 1; layers and matrix
products count only their matrix products, as is usual.
"""

from __future__ import annotations

from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.dtypes import SIZES, canonical

Array = Any
INDEX = "int64"


def size(dtype: str, *counts: int) -> float:
    """Bytes of arrays of one format, given their numbers of elements."""
    return SIZES[canonical(dtype)] * sum(counts)


def divides(part: str, count: int, whole: str, total: int) -> int:
    """The size of each group; raises `NotApplicable` if it is not a whole number."""
    if count < 1 or total % count:
        raise NotApplicable(f"{whole}={total} is not a multiple of {part}={count}")
    return total // count
