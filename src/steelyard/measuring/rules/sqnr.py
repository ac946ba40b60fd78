"""How much of the signal a cheaper number format keeps: SQNR, cosine, largest and mean error against the plain task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from steelyard.errors import Unsupported
from steelyard.measuring.rules import Answers, Leaves
from steelyard.measuring.verify import side_by_side
from steelyard.model.record import Verification
from steelyard.model.task import Standard, Task

RULE = "sqnr"
FLOOR = 5.0
"""The least SQNR in decibels, unless a variant sets another: about that of two bits."""
FIGURES = {
    "sqnr": ("dB", "higher"), "sqnr_outliers": ("dB", "higher"), "sqnr_pruning": ("dB", "higher"), "cosine": ("1", "higher"),
    "max_error": ("1", "lower"), "mean_error": ("1", "lower"),
}  # fmt: skip
"""The figures that are metrics of the record, with unit and direction; errors are shares of the signal's root mean square."""
MOST = 200.0
"""The largest SQNR in decibels that is reported; bit-identical answers have none."""


def judge(answers: Answers, floor: float | None = None, inputs: int = 2) -> Verification:
    """Check the worst of `inputs` normal inputs, and of as many with the outliers that activations have: below the floor is wrong.

    `sqnr` and the errors are of normal inputs, with which formats are usually compared; `sqnr_outliers` is of inputs with outliers.
    Without a floor the variant's is used. The loss from pruning is reported but not judged, because it is intended.
    """
    standard = answers.standard or Standard(FLOOR)
    least = standard.floor if floor is None else floor
    plain, outliers = ([_figures(got, want) for got, want in answers.beside(inputs, outliers=extreme)] for extreme in (False, True))
    if broken := [row for row in (*plain, *outliers) if isinstance(row, str)]:
        return Verification("failed", standard.words, broken[0])
    found = _worst(plain)
    if outliers:
        found["sqnr_outliers"] = _worst(outliers)["sqnr"]
    kept = min(found["sqnr"], found.get("sqnr_outliers", math.inf))
    pruned = [_figures(got, want) for got, want in answers.standards(inputs)] if standard.loss else []
    found |= {standard.loss: _worst(pruned)["sqnr"]} if pruned else {}
    drawn = f"{len(plain)} normal inputs and {len(outliers)} with outliers" if outliers else "the task's own inputs"
    what = "SQNR of gradients" if answers.mode in ("train", "bwd") else "SQNR"
    good = kept >= least
    message = "" if good else f"keeps {kept:.1f} dB of the signal, at least {least:g} dB are required"
    figures = {name: value for name, value in (found | {"floor": least}).items() if math.isfinite(value)}
    checks = [f"{what} on {drawn}, at least {least:g} dB"]
    return Verification("passed" if good else "failed", standard.words, message, identical=math.isinf(kept), checks=checks, figures=figures)


def share_lost(floor: float) -> float:
    """The largest norm of an error at a floor, as a share of the array's norm."""
    return float(10 ** (-floor / 20))


def held_at(task: Task, floor: float | None) -> Task:
    """A task with the floor that a user asks for, in place of that of its variants.

    Our own checks, which look for answers of other calls and other inputs, require of every array at most the usual floor, and the
    right length: this rule judges accuracy. They accept whatever a user's floor accepts.
    """
    if task.standard is None:
        return task
    if floor is None:
        return replace(task, whole_tolerance=share_lost(min(task.standard.floor, FLOOR)))
    return replace(task, standard=replace(task.standard, floor=floor), whole_tolerance=2 * share_lost(min(floor, FLOOR)))


def _worst(rows: Iterable[Mapping[str, float] | str]) -> dict[str, float]:
    told: Sequence[Mapping[str, float]] = [row for row in rows if not isinstance(row, str)]
    return {name: (min if FIGURES[name][1] == "higher" else max)(row[name] for row in told) for name in told[0]}


def _figures(got: Leaves, want: Leaves) -> dict[str, float] | str:
    """The figures over all arrays of an answer, or what is wrong with it whatever its SQNR is."""
    if set(got) != set(want):
        return "answers of another structure"
    error = signal = product = own = absolute = 0.0
    largest, count = 0.0, 0
    for path, leaf in want.items():
        if got[path].shape != leaf.shape:
            return f"{path}: shape {got[path].shape} instead of {leaf.shape}"
        mine, theirs, space = side_by_side(got[path], leaf)
        if not bool(space.isfinite(theirs).all()):
            raise Unsupported(f"accuracy cannot be measured: the plain task itself returns values in {path} that are not finite")
        if not bool(space.isfinite(mine).all()):
            return f"{path}: values that are not finite"
        apart = space.abs(mine - theirs)
        error, signal, own = error + float((apart**2).sum()), signal + float((theirs**2).sum()), own + float((mine**2).sum())
        product, absolute = product + float((mine * theirs).sum()), absolute + float(apart.sum())
        largest, count = max(largest, float(apart.max())), count + math.prod(mine.shape)
    if not signal and not error:
        raise Unsupported("accuracy cannot be measured: this and the plain task return only zeros")
    if not signal:
        return "the plain task returns only zeros"
    scale = math.sqrt(signal / count)
    return {
        "sqnr": min(10 * math.log10(signal / error), MOST) if error else math.inf,
        "cosine": product / math.sqrt(own * signal) if own else 0.0,
        "max_error": largest / scale,
        "mean_error": absolute / count / scale,
    }
