"""Every output within an absolute and a relative tolerance of the plain task's: count, shape, format and NaN first, then the difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.measuring.rules import Answers
from steelyard.measuring.verify import LeafLike
from steelyard.model.record import Verification

AGAINST = "the model without a compiler"


def judge(answers: Answers, atol: float = 0.0, rtol: float = 0.0) -> Verification:
    """Check every output; the message has the number of the first wrong one."""
    got, want = list(answers.candidate(1).values()), list(answers.eager(1).values())
    if not want and not got:
        return Verification("none", message="it returns no arrays")
    if len(got) != len(want):
        return Verification("failed", AGAINST, f"{len(got)} outputs instead of {len(want)}")
    worst = 0.0
    for number, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        off, trouble = apart(mine, theirs, atol, rtol)
        if trouble:
            return Verification("failed", AGAINST, f"output {number}: {trouble}", checks=["every output"])
        worst = max(worst, off)
    checks = [f"{len(want)} outputs, absolute tolerance {atol:g}, relative tolerance {rtol:g}"]
    return Verification("passed", AGAINST, identical=worst == 0, checks=checks, figures={"max_difference": worst})


def apart(mine: LeafLike, theirs: LeafLike, atol: float, rtol: float) -> tuple[float, str]:
    """The largest difference of two outputs, and what is wrong, if anything."""
    if mine.shape != theirs.shape:
        return 0.0, f"shape {tuple(mine.shape)} instead of {tuple(theirs.shape)}"
    if mine.dtype != theirs.dtype:
        return 0.0, f"format {mine.dtype} instead of {theirs.dtype}"
    one, other = np.asarray(mine.data), np.asarray(theirs.data)
    if one.dtype.kind in "fc" and (bad := int(np.isnan(one).sum()) + int(np.isnan(other).sum())):
        return 0.0, f"NaN, {bad} in it and in the expected output"
    off = differences(one, other)
    largest = float(off.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        over = (off > atol + rtol * np.abs(other if other.dtype.kind == "c" else other.astype(np.float64))) | ~np.isfinite(off)
    if not over.any():
        return largest, ""
    share = f"{int(over.sum())} of {over.size} values are off"
    return largest, f"{share}, by up to {largest:.6g}, absolute tolerance {atol:g}, relative tolerance {rtol:g}"


def differences(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Any:
    """Absolute differences that do not wrap, as those of unsigned numbers do, or fail, as those of booleans do."""
    if one.dtype == bool:
        return (one != other).astype(np.float64)
    if one.dtype.kind in "iu":
        more, less = np.where(one > other, one, other), np.where(one > other, other, one)
        return np.maximum(more.astype(np.float64) - less.astype(np.float64), (one != other).astype(np.float64))
    wide = (one.astype(np.complex128), other.astype(np.complex128)) if one.dtype.kind == "c" else (one.astype(float), other.astype(float))
    with np.errstate(invalid="ignore"):
        found = np.abs(wide[0] - wide[1])
    return np.where(wide[0] == wide[1], 0.0, found)
