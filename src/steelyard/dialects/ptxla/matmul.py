"""The original's sweep over square matrix products, one stack against another, as our cases under the original's names."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.dialects.ptxla.results import STACKS
from steelyard.dialects.ptxla.weighing import TwoSides
from steelyard.errors import UsageError, unknown
from steelyard.model import ranges
from steelyard.model.case import Case
from steelyard.model.dtypes import canonical

FIRST, LAST, STEP = 256, 8192, 128
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""Formats of the sweep in their order, with torch's names."""
LARGEST = 2**17
"""The largest size: its factors in f32, on both sides, fill 256 GiB."""


def sizes(text: str) -> list[int]:
    """Read `256:8192:128` (both ends included), or single sizes: `256,1024`."""
    try:
        if ":" in text:
            first, last, step = (int(part) for part in text.split(":"))
            found = list(ranges.values(first, last, step)) if last <= LARGEST else []
        else:
            found = [int(part) for part in text.split(",")]
    except (ValueError, UsageError):
        found = []
    if not found or min(found) < 1 or max(found) > LARGEST:
        raise UsageError(f"not sizes of matrices: {text!r}", do=f"write them like {FIRST}:{LAST}:{STEP} (first:last:step) or 256,1024")
    return [int(size) for size in dict.fromkeys(found)]


def sweep(numbers: Sequence[int], dtypes: Sequence[str], baseline: str, testing: str, device: str, threads: int) -> list[TwoSides]:
    """Return the comparisons: every size in one format after the other."""
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown("number format of the sweep", dtype, DTYPES)
    for name in (baseline, testing):
        if name not in STACKS:
            raise unknown("backend", name, STACKS)
    return [
        TwoSides(_name(dtype, n), *(_case(name, dtype, n, device, threads) for name in (baseline, testing)))
        for dtype in dtypes or DTYPES
        for n in numbers
    ]


def _name(dtype: str, n: int) -> str:
    """Return the name that the original prints."""
    return f"matmul-torch.{DTYPES[dtype]}-lhs{n}x{n}-rhs{n}x{n}"


def _case(stack: str, dtype: str, n: int, device: str, threads: int) -> Case:
    """Return a product on one stack; those of f32 may use TF32 on a GPU, as in the original."""
    backend, variant = STACKS[stack]
    if backend == "torch" and dtype == "f32" and device == "cuda":
        variant = "tf32" if variant == "eager" else f"tf32+{variant}"
    params = (("m", n), ("n", n), ("k", n), ("dtype", canonical(DTYPES[dtype])))
    return Case("op/matmul", params, backend, variant, device=device, threads=threads)
