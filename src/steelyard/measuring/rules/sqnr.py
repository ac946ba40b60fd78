"""How much of the signal a cheaper number format keeps: SQNR, cosine, largest and mean error against the plain task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from steelyard.measuring.rules import Answers, Leaves
from steelyard.measuring.verify import side_by_side
from steelyard.model.record import Verification

AGAINST = "the plain task"
FLOOR = 5.0
"""Decibels that must be left of a signal: what two bits hold. A scale that is off by a factor of two leaves none."""
FIGURES = {
    "sqnr": ("dB", "higher"), "sqnr_outliers": ("dB", "higher"), "cosine": ("1", "higher"), "max_error": ("1", "lower"),
    "mean_error": ("1", "lower"),
}  # fmt: skip
"""The figures that are metrics of the record, with unit and direction; errors are shares of the signal's root mean square."""
MOST = 200.0
"""Decibels beyond which nothing is told apart; two answers of the same bits have none at all."""


def judge(answers: Answers, floor: float = FLOOR, inputs: int = 2) -> Verification:
    """The worst of so many normal inputs, and of as many with the outliers that activations have; below the floor it is wrong.

    `sqnr` and the errors are of normal inputs, as formats are compared everywhere; `sqnr_outliers` is of the others.
    """
    plain, outliers = ([_figures(got, want) for got, want in answers.beside(inputs, outliers=extreme)] for extreme in (False, True))
    if broken := [row for row in (*plain, *outliers) if isinstance(row, str)]:
        return Verification("failed", AGAINST, broken[0])
    if not plain:
        return Verification("none", message="its inputs could not be given other values")
    found = _worst([row for row in plain if not isinstance(row, str)])
    if outliers:
        found["sqnr_outliers"] = _worst([row for row in outliers if not isinstance(row, str)])["sqnr"]
    kept = {name: value for name, value in found.items() if math.isfinite(value)}
    least = min(found["sqnr"], found.get("sqnr_outliers", math.inf))
    drawn = f"{len(plain)} normal inputs and {len(outliers)} with outliers" if outliers else "the task's own inputs"
    checks = [f"SQNR on {drawn}"]
    good = least >= floor
    message = "" if good else f"keeps {least:.1f} dB of the signal, at least {floor:g} dB are asked for"
    same = math.isinf(least)
    return Verification("passed" if good else "failed", AGAINST, message, identical=same, checks=checks, figures=kept)


def _worst(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: (min if FIGURES[name][1] == "higher" else max)(row[name] for row in rows) for name in rows[0]}


def _figures(got: Leaves, want: Leaves) -> dict[str, float] | str:
    """Over all arrays of an answer together, or what cannot be compared."""
    if set(got) != set(want):
        return "answers of another structure"
    error = signal = product = own = absolute = 0.0
    largest, count = 0.0, 0
    for path, leaf in want.items():
        if got[path].shape != leaf.shape:
            return f"{path}: shape {got[path].shape} instead of {leaf.shape}"
        mine, theirs, space = side_by_side(got[path], leaf)
        if not bool(space.isfinite(mine).all()):
            return f"{path}: values that are not finite"
        apart = space.abs(mine - theirs)
        error, signal, own = error + float((apart**2).sum()), signal + float((theirs**2).sum()), own + float((mine**2).sum())
        product, absolute = product + float((mine * theirs).sum()), absolute + float(apart.sum())
        largest, count = max(largest, float(apart.max())), count + math.prod(mine.shape)
    if not signal:
        return "the plain task answers nothing but zeros"
    scale = math.sqrt(signal / count)
    return {
        "sqnr": min(10 * math.log10(signal / error), MOST) if error else math.inf,
        "cosine": product / math.sqrt(own * signal) if own else 0.0,
        "max_error": largest / scale,
        "mean_error": absolute / count / scale,
    }
