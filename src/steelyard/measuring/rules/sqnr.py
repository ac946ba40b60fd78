"""How much of the signal a cheaper number format keeps: SQNR, cosine, largest and mean error against the plain task."""

from __future__ import annotations

import math

from steelyard.measuring.rules import Answers, Leaves
from steelyard.measuring.verify import side_by_side
from steelyard.model.record import Verification

FLOOR = 5.0
FIGURES = {"sqnr": ("dB", "higher"), "cosine": ("1", "higher"), "max_error": ("1", "lower"), "mean_error": ("1", "lower")}
"""The figures that are metrics of the record, with unit and direction; errors are shares of the signal's root mean square."""
MOST = 200.0
"""Decibels beyond which nothing is told apart; two answers of the same bits have none at all."""


def judge(answers: Answers, floor: float = FLOOR, inputs: int = 4) -> Verification:
    """The worst of several inputs, drawn with the outliers that activations have; below the floor the answer is wrong."""
    rows = [_figures(got, want) for got, want in answers.beside(inputs)]
    if not rows:
        return Verification("none", message="there is no answer of floating numbers to compare")
    broken = next((row for row in rows if isinstance(row, str)), None)
    if broken is not None:
        return Verification("failed", "the plain task", broken)
    found = [row for row in rows if not isinstance(row, str)]
    worst = {name: (min if better == "higher" else max)(row[name] for row in found) for name, (_, better) in FIGURES.items()}
    checks = [f"{len(found)} inputs with outliers"]
    if math.isinf(worst["sqnr"]):
        kept = {name: value for name, value in worst.items() if math.isfinite(value)}
        return Verification("passed", "the plain task", identical=True, checks=checks, figures=kept)
    good = worst["sqnr"] >= floor
    message = "" if good else f"keeps {worst['sqnr']:.1f} dB of the signal, at least {floor:g} dB are asked for"
    return Verification("passed" if good else "failed", "the plain task", message, checks=checks, figures=worst)


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
