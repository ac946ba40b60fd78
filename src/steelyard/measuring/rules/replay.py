"""Whether a replay matches its recording: the required share of operators, and results of the recorded shapes and formats."""

from __future__ import annotations

from steelyard.measuring.rules import Answers
from steelyard.model.record import Verification

AGAINST = "the recording"
FIGURES = {"coverage": ("1", "higher")}
"""The smallest of the shares of operators, recorded time, operations and bytes that were replayed."""
PLACES = ("out.coverage", "out.unlike")


def judge(answers: Answers, coverage: float = 0.0, lossy: bool = False) -> Verification:
    """Fail below the required coverage, or if a result has another shape or format.

    A `lossy` variant, such as another format, may change shapes and formats on purpose.
    """
    found = answers.candidate(1)
    share, unlike = (float(found[place].data.reshape(-1)[0]) if place in found else 0.0 for place in PLACES)
    checks, figures = ["coverage", "shapes and formats of results"], {"coverage": share, "unlike": unlike}
    if share < coverage:
        message = f"{share:.2%} is replayed, {coverage:.2%} is required"
        return Verification("failed", AGAINST, message, checks=checks, figures=figures)
    if unlike and not lossy:
        message = f"{unlike:.0f} result{'' if unlike == 1 else 's'} came out in another shape or format than recorded"
        return Verification("failed", AGAINST, message, checks=checks, figures=figures)
    return Verification("passed", AGAINST, checks=checks, figures=figures)
