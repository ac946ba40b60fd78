"""PyTorch/XLA's rule: the mean relative error to eager PyTorch, and how far candidate and eager are from double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.errors import told
from steelyard.measuring.rules import RAISED, Answers, Leaves
from steelyard.measuring.verify import Array, LeafLike
from steelyard.model.record import Verification

THRESHOLD = 0.02
COSINE = 0.99
EVAL_TOLERANCE, TRAIN_TOLERANCE, CUDA_TRAIN_TOLERANCE, LOOSE_TRAIN_TOLERANCE = 1e-2, 1e-4, 1e-3, 8e-2
NEAR_DOUBLE = 4e-2
LARGE_TOLERANCE = 2e-2
SURE = 0.1
"""A gradient is distinguishable from rounding if its error is at most this share of it."""
SMALL_ARRAYS = ((10, 10.0), (500, 8.0))
SHORT = ("fp16", "bf16")
GRADIENTS, PARAMETERS, LOSS = "out.gradients.", "out.parameters.", "out.loss"

PASS, FAIL = "PASS", "FAIL"
EAGER_FAILED, NONDETERMINISTIC = "EAGER_FAILED", "NONDETERMINISTIC_EAGER_RUN"
NOTHING_TO_COMPARE = "CANNOT_PROCEED_WITH_VERIFICATION"


@dataclass(frozen=True)
class Limits:
    """How close an answer must be.

    `step` is how far two steps of Adam may differ along a gradient that is only rounding, whose direction is random; None for other
    optimizers. `iou` is how much masks must overlap, `multiplier` how many times eager's own error is allowed in any case.
    """

    tolerance: float
    threshold: float = THRESHOLD
    cosine: bool = False
    small_tensors: bool = False
    step: float | None = None
    iou: float | None = None
    multiplier: float | None = None


def judge(
    answers: Answers,
    tolerance: float | None = None,
    cosine: bool = False,
    small_tensors: bool = False,
    even_higher: bool = False,
    calls: int = 1,
    iou: float | None = None,
    multiplier: float | None = None,
) -> Verification:
    """Run eager twice, then in double precision, then the candidate; each kind of failure has its own code.

    A given tolerance applies to the mean error too; the default depends on test and device.
    """
    training = answers.mode == "train"
    usual = LOOSE_TRAIN_TOLERANCE if even_higher else CUDA_TRAIN_TOLERANCE if answers.device == "cuda" else TRAIN_TOLERANCE
    allowed = float(tolerance) if tolerance is not None else usual if training else EVAL_TOLERANCE
    threshold = max(THRESHOLD, allowed) if tolerance is not None else THRESHOLD
    step = 2 * answers.rate * calls if training and answers.rate is not None else None
    limits = Limits(allowed, threshold, cosine, small_tensors, step, iou, multiplier)
    try:
        first, second = answers.eager(calls), answers.eager(calls)
    except Exception as error:
        return Verification("none", message=f"eager PyTorch failed: {told(error, 500)}", code=EAGER_FAILED)
    if not first:
        return Verification("none", message="the model returns no array", code=NOTHING_TO_COMPARE)
    if reason := differences(first, second):
        return Verification("none", message=reason, code=NONDETERMINISTIC)
    try:
        wide, lost = answers.double(calls), ""
    except Exception as error:
        wide, lost = None, f"no run in double precision: {told(error, 500)}"
    try:
        got = answers.candidate(calls)
        off = mean_relative_error(got, first, only=LOSS if training else "")
        reason = compare(got, first, wide, limits) or ("" if training else far(off, got, first, wide, limits))
    except Exception as error:
        return Verification("none", message=f"verification raised: {told(error, 500)}", code=RAISED)
    against = "eager and its run in double precision" if wide is not None else f"eager, by cosine ({lost})"
    figures = {} if off is None else {"mean_rel_error": off}
    return Verification("failed" if reason else "passed", against, reason, rtol=allowed, code=FAIL if reason else PASS, figures=figures)


def differences(first: Leaves, second: Leaves) -> str:
    """The first difference of two runs of the same task; empty if there is none."""
    if first.keys() != second.keys():
        return "two eager runs return different structures"
    for place, one in first.items():
        other = second[place]
        if one.shape != other.shape or not np.array_equal(one.data, other.data, equal_nan=one.data.dtype.kind in "fc"):
            return f"{place} differs between two eager runs"
    return ""


def _wide(leaf: LeafLike) -> Array:
    return np.asarray(leaf.data, np.complex128 if leaf.data.dtype.kind == "c" else np.float64)


def mean_relative_error(got: Leaves, eager: Leaves, *, only: str = "") -> float | None:
    """Mean of |got - eager| / |eager| over all elements; where eager is exactly 0, its RMS is used instead.

    Two zeros are equal; the original's formula gives NaN for them. None if there is nothing to compare.
    """
    total, count = 0.0, 0
    for place, want in eager.items():
        if place not in got or got[place].shape != want.shape or want.data.dtype.kind != "f" or (only and place != only):
            continue
        mine, theirs = _wide(got[place]), _wide(want)
        size = float(np.sqrt(np.mean(np.square(theirs)))) if theirs.size else 0.0
        scale = np.where(theirs == 0, size or 1.0, np.abs(theirs))
        with np.errstate(invalid="ignore"):
            error = np.abs(mine - theirs) / scale
        error = np.where((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), 0.0, error)
        total, count = total + float(error.sum()), count + error.size
    return total / count if count else None


def far(error: float | None, got: Leaves, eager: Leaves, wide: Leaves | None, limits: Limits) -> str:
    """Why the mean relative error is too large, or empty: more than 2 % is, or more than rounding costs eager if that is larger.

    In short formats elements near 0 make the quotient arbitrarily large, for eager as well as for the candidate.
    """
    if error is None:
        return ""
    if not math.isfinite(error):
        return f"the mean relative error is {error}"
    own = mean_relative_error(eager, wide) if wide is not None else None
    times = 3.0 if any(item.dtype in SHORT for item in got.values()) else 2.0
    allowed = max(limits.threshold, times * own if own is not None and math.isfinite(own) else 0.0)
    return "" if error < allowed else f"the mean relative error to eager is {error:.3g}, and {allowed:.3g} is allowed"


def compare(got: Leaves, eager: Leaves, wide: Leaves | None, limits: Limits) -> str:
    """What is wrong with the first array that is too far off; empty if none is."""
    if got.keys() != eager.keys():
        missing = sorted(eager.keys() - got.keys()) or sorted(got.keys() - eager.keys())
        return f"another structure than eager's: {missing[0]}"
    for place, want in eager.items():
        mine, reference = got[place], wide.get(place) if wide is not None else None
        if mine.shape != want.shape:
            return f"{place}: shape {mine.shape} instead of {want.shape}"
        if mine.dtype != want.dtype:
            return f"{place}: dtype {mine.dtype} instead of {want.dtype}"
        arrays = (mine.data, want.data, None if reference is None else reference.data)
        times = multiplier(mine, limits)
        if limits.step is not None and (sure := _surely_moved(place, got, eager, wide)) is not None:
            astray = np.abs(_wide(mine)[~sure] - _wide(want)[~sure])
            if not bool((astray <= limits.step + limits.tolerance).all()):
                return f"{place}: further from eager's than a step along a gradient that is only rounding"
            arrays = (mine.data[sure], want.data[sure], None if reference is None else reference.data[sure])
        if reason := compare_arrays(*arrays, limits, times):
            return f"{place}: {reason}"
    return ""


def _surely_moved(place: str, got: Leaves, eager: Leaves, wide: Leaves | None) -> Any:
    """A mask of where a weight's gradient is distinguishable from rounding; None for other arrays.

    Adam's step is as long for a gradient that is zero except for rounding as for any other. Eager's own distance from double precision
    decides where that is so, because a candidate's wrong gradient must not excuse itself.
    """
    gradient = GRADIENTS + place.removeprefix(PARAMETERS)
    if not place.startswith(PARAMETERS) or gradient not in eager or gradient not in got:
        return None
    if wide is None or gradient not in wide:
        return None
    true = _wide(wide[gradient])
    return np.abs(_wide(eager[gradient]) - true) <= SURE * np.abs(true)


def compare_arrays(got: Array, eager: Array, wide: Array | None, limits: Limits, times: float) -> str:
    """Compare one array with eager's, and with double precision if known; `times` is how many times eager's own error is allowed."""
    tolerance = limits.tolerance
    if got.dtype.kind == "b" and limits.iou is not None:
        both, either = int((got & eager).sum()), int((got | eager).sum())
        overlap = both / either if either else 1.0
        return "" if overlap >= limits.iou else f"the masks overlap by {overlap:.3g}, and {limits.iou:g} is needed"
    if got.dtype.kind not in "fc":
        alike = np.allclose(got.astype(np.float64), eager.astype(np.float64), rtol=tolerance, atol=tolerance)
        return "" if alike else "values differ"
    if np.allclose(got, eager, rtol=tolerance, atol=tolerance, equal_nan=True):
        return ""
    if limits.cosine or wide is None:
        near = cosine(got, eager)
        return "" if near >= COSINE else f"the cosine to eager is {near:.4g}, and {COSINE} is needed"
    if bool(np.isnan(eager).any()) and np.allclose(got, wide, rtol=NEAR_DOUBLE, atol=NEAR_DOUBLE, equal_nan=True):
        return ""
    mine, theirs = rms_error(wide, got), rms_error(wide, eager)
    if math.isnan(mine) and math.isnan(theirs):
        return ""
    allowed = times * theirs + tolerance / 10.0
    return (
        "" if mine <= allowed else f"{mine:.3g} away from double precision, where eager is {theirs:.3g} away and {allowed:.3g} is allowed"
    )


def multiplier(got: LeafLike, limits: Limits) -> float:
    """How many times eager's own error is allowed: more if there are few values or their format is short, where it depends on luck."""
    size = math.prod(got.shape)
    if limits.multiplier is not None:
        return limits.multiplier
    if limits.small_tensors:
        for most, times in SMALL_ARRAYS:
            if size <= most:
                return times
    pointwise = len(got.shape) == 4 and tuple(got.shape[-2:]) == (1, 1)
    return 3.0 if got.dtype in SHORT or size < 1000 or pointwise or limits.tolerance >= LARGE_TOLERANCE else 2.0


def cosine(got: Array, eager: Array) -> float:
    """The cosine of the angle between two arrays."""
    mine, theirs = got.ravel().astype(np.float64), eager.ravel().astype(np.float64)
    return float(mine @ theirs / max(float(np.linalg.norm(mine) * np.linalg.norm(theirs)), 1e-6))


def rms_error(wide: Array, other: Array) -> float:
    """Root mean square of the difference."""
    kind = np.complex128 if other.dtype.kind == "c" else np.float64
    return float(np.sqrt(np.mean(np.square(np.abs(wide.astype(kind) - other.astype(kind))))))
