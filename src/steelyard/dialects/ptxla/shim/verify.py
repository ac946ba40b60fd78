"""Is a config's answer right? Two rules at once: the mean relative error to eager, and how far both are from double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from steelyard.errors import told
from steelyard.workloads.models.subject import RATE, leaves

THRESHOLD = 0.02
COSINE = 0.99
EVAL_TOLERANCE, TRAIN_TOLERANCE, CUDA_TRAIN_TOLERANCE, LOOSE_TRAIN_TOLERANCE = 1e-2, 1e-4, 1e-3, 8e-2
NEAR_DOUBLE = 4e-2
LARGE_TOLERANCE = 2e-2
SURE = 0.1
"""A gradient is told from rounding where its error is at most this share of it."""
SMALL_ARRAYS = ((10, 10.0), (500, 8.0))

PASS, FAIL = "PASS", "FAIL"
EAGER_FAILED, NONDETERMINISTIC = "EAGER_FAILED", "NONDETERMINISTIC_EAGER_RUN"
RAISED, SKIPPED, DID_NOT_RUN = "EXCEPTION_RAISED", "VERIFIER_SKIPPED", "VERIFIER_DIDNT_RUN"
NOTHING_TO_COMPARE = "CANNOT_PROCEED_WITH_VERIFICATION"

Answer = Mapping[str, Any]
"""Tensors by their place in what a model answered."""


@dataclass(frozen=True)
class Rules:
    """How near an answer must be, for one model in one test.

    `step` is how far two steps of Adam may come apart along a gradient that is only rounding, in a direction that is chance; other
    optimizers have none.
    """

    tolerance: float
    cosine: bool = False
    small_tensors: bool = False
    equal_nan: bool = True
    threshold: float = THRESHOLD
    step: float | None = None

    @classmethod
    def of(cls, test: str, accelerator: str, policy: Mapping[str, Any], iterations: int = 1) -> Rules:
        """By test and accelerator, unless the policy gives this model a tolerance of its own, which then counts for the mean error too."""
        threshold = THRESHOLD
        if policy.get("tolerance") is not None:
            tolerance = float(policy["tolerance"])
            threshold = max(threshold, tolerance)
        elif test == "eval":
            tolerance = EVAL_TOLERANCE
        elif accelerator == "cuda":
            tolerance = LOOSE_TRAIN_TOLERANCE if policy.get("even_higher") else CUDA_TRAIN_TOLERANCE
        else:
            tolerance = TRAIN_TOLERANCE
        step = 2 * RATE * iterations if test == "train" and not policy.get("sgd") else None
        return cls(tolerance, bool(policy.get("cosine")), bool(policy.get("small_tensors")), threshold=threshold, step=step)


@dataclass(frozen=True)
class Verified:
    """What verification says: a code, the number that the original's README promises, and in our words why."""

    code: str
    mean_rel_error: float | None = None
    why: str = ""
    against: str = ""
    tolerance: float | None = None

    def plain(self) -> dict[str, Any]:
        """For the row."""
        return asdict(self)


def verify(
    candidate: Callable[[], Answer],
    eager: Callable[[], Answer],
    double: Callable[[], Answer],
    rules: Rules,
    *,
    training: bool = False,
) -> Verified:
    """Eager twice, in double precision, then the candidate; whatever cannot be had has its own code."""
    try:
        first, second = eager(), eager()
    except Exception as error:
        return Verified(EAGER_FAILED, why=told(error, 500))
    if not first:
        return Verified(NOTHING_TO_COMPARE, why="the model answers no tensor")
    if reason := differences(first, second, rules):
        return Verified(NONDETERMINISTIC, why=reason)
    try:
        wide, lost = double(), ""
    except Exception as error:
        wide, lost = None, f"no run in double precision: {told(error, 500)}"
    try:
        got = candidate()
        off = mean_relative_error(got, first, only="out.loss" if training else "")
        reason = compare(got, first, wide, rules) or ("" if training else far(off, got, first, wide, rules))
    except Exception as error:
        return Verified(RAISED, why=told(error, 500))
    against = "eager and its run in double precision" if wide is not None else f"eager, by cosine ({lost})"
    return Verified(FAIL if reason else PASS, off, reason, against, rules.tolerance)


def differences(first: Answer, second: Answer, rules: Rules) -> str:
    """Where two runs of the same thing differ at all; empty if they do not."""
    import torch

    if first.keys() != second.keys():
        return "two eager runs answer different structures"
    for place, one in first.items():
        if one.shape != second[place].shape or not torch.allclose(one, second[place], rtol=0.0, atol=0.0, equal_nan=rules.equal_nan):
            return f"{place} differs between two eager runs"
    return ""


def mean_relative_error(got: Answer, eager: Answer, *, only: str = "") -> float | None:
    """Mean of |got - eager| / |eager| over all elements; where eager is exactly 0, the array's own size stands in for it.

    Two zeros are equal, which the original's formula makes a NaN. None where there is nothing to compare.
    """
    total, count = 0.0, 0
    for place, want in eager.items():
        if place not in got or got[place].shape != want.shape or not want.is_floating_point() or (only and place != only):
            continue
        mine, theirs = got[place].double(), want.double()
        size = float(theirs.square().mean().sqrt()) if theirs.numel() else 0.0
        scale = theirs.abs().masked_fill(theirs == 0, size or 1.0)
        error = (mine - theirs).abs() / scale
        error = error.masked_fill(mine.eq(theirs) | (mine.isnan() & theirs.isnan()), 0.0)
        total, count = total + float(error.sum()), count + error.numel()
    return total / count if count else None


def far(error: float | None, got: Answer, eager: Answer, wide: Answer | None, rules: Rules) -> str:
    """Whether the mean relative error is too large: 2 %, or as much as rounding alone costs eager where that is more.

    Elements near 0 make the quotient as large as one likes in short formats, for eager as for the candidate.
    """
    if error is None:
        return ""
    if not math.isfinite(error):
        return f"the mean relative error is {error}"
    own = mean_relative_error(eager, wide) if wide is not None else None
    shorts = any(_short(item) for item in got.values())
    allowed = max(rules.threshold, (3.0 if shorts else 2.0) * own if own is not None and math.isfinite(own) else 0.0)
    return "" if error < allowed else f"the mean relative error to eager is {error:.3g}, and {allowed:.3g} is allowed"


def compare(got: Answer, eager: Answer, wide: Answer | None, rules: Rules) -> str:
    """The first array that is too far off, in words; empty if none is."""
    if got.keys() != eager.keys():
        missing = sorted(eager.keys() - got.keys()) or sorted(got.keys() - eager.keys())
        return f"another structure than eager's: {missing[0]}"
    for place, want in eager.items():
        mine, reference = got[place], wide.get(place) if wide is not None else None
        sure = _surely_moved(place, got, eager, wide) if rules.step is not None and mine.shape == want.shape else None
        times = multiplier(mine, rules)
        if sure is not None and rules.step is not None:
            astray = (mine[~sure].double() - want[~sure].double()).abs()
            if not bool((astray <= rules.step + rules.tolerance).all()):
                return f"{place}: further from eager's than a step along a gradient that is only rounding"
            mine, want, reference = mine[sure], want[sure], reference[sure] if reference is not None else None
        if reason := compare_arrays(mine, want, reference, rules, times):
            return f"{place}: {reason}"
    return ""


def _surely_moved(place: str, got: Answer, eager: Answer, wide: Answer | None) -> Any:
    """Where a weight's gradient is told from rounding, or None for what is no weight.

    Adam's step is as long for a gradient that is zero but for rounding as for any other. The gradients are compared as they are.
    """
    part, _, name = place.partition(".")
    gradient = f"gradients.{name}"
    if part != "parameters" or gradient not in eager or gradient not in got:
        return None
    true = (wide if wide is not None and gradient in wide else eager)[gradient].double()
    errors = [(found[gradient].double() - true).abs() for found in (got, eager)]
    return (errors[0] <= SURE * true.abs()) & (errors[1] <= SURE * true.abs())


def compare_arrays(got: Any, eager: Any, wide: Any, rules: Rules, times: float | None = None) -> str:
    """One array against eager's, and against double precision where there is one; `times` is for a part of a larger array."""
    import torch

    if got.shape != eager.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(eager.shape)}"
    if got.dtype != eager.dtype:
        return f"dtype {got.dtype} instead of {eager.dtype}"
    tolerance = rules.tolerance
    if not got.is_floating_point() and not got.is_complex():
        mine, theirs = got.double(), eager.double()
        return "" if torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance) else "values differ"
    if torch.allclose(got, eager, rtol=tolerance, atol=tolerance, equal_nan=rules.equal_nan):
        return ""
    if rules.cosine or wide is None:
        near = float(torch.nn.functional.cosine_similarity(got.flatten().float(), eager.flatten().float(), dim=0, eps=1e-6))
        return "" if near >= COSINE else f"the cosine to eager is {near:.4g}, and {COSINE} is needed"
    if bool(eager.isnan().any()) and torch.allclose(got.double(), wide.double(), rtol=NEAR_DOUBLE, atol=NEAR_DOUBLE, equal_nan=True):
        return ""
    mine, theirs = rms_error(wide, got), rms_error(wide, eager)
    if math.isnan(mine) and math.isnan(theirs) and rules.equal_nan:
        return ""
    allowed = (multiplier(got, rules) if times is None else times) * theirs + tolerance / 10.0
    return (
        "" if mine <= allowed else f"{mine:.3g} away from double precision, where eager is {theirs:.3g} away and {allowed:.3g} is allowed"
    )


def multiplier(got: Any, rules: Rules) -> float:
    """How many times eager's own error is allowed: more where few values, or values in a short format, make it a matter of luck."""
    size = got.numel()
    if rules.small_tensors:
        for most, times in SMALL_ARRAYS:
            if size <= most:
                return times
    if _short(got) or size < 1000 or (got.ndim == 4 and tuple(got.shape[-2:]) == (1, 1)) or rules.tolerance >= LARGE_TOLERANCE:
        return 3.0
    return 2.0


def _short(item: Any) -> bool:
    return bool(item.is_floating_point()) and int(item.element_size()) == 2


def rms_error(wide: Any, other: Any) -> float:
    """Root mean square of the difference."""
    import torch

    kind = torch.complex128 if other.is_complex() else torch.float64
    return float((wide.to(kind) - other.to(kind)).abs().square().mean().sqrt())


def answer(
    output: Any, loss: Any = None, gradients: Mapping[str, Any] | None = None, parameters: Mapping[str, Any] | None = None
) -> Answer:
    """What is compared, copied to the host: the output, and in training the loss, the gradients and the weights after the step."""
    found = leaves(output, "out.prediction" if loss is not None else "out")
    if loss is not None:
        found["out.loss"] = loss
    found |= {f"gradients.{name}": item for name, item in (gradients or {}).items() if item is not None}
    found |= {f"parameters.{name}": item for name, item in (parameters or {}).items()}
    return {place: item.detach().to("cpu", copy=True) for place, item in found.items()}
