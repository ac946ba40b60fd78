"""Compares an answer's error with the plain task's, both against the exact answer: tolerances allow more than rounding explains."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Task

EPS = {"fp32": 2.0**-23, "fp64": 2.0**-52, "complex64": 2.0**-23, "complex128": 2.0**-52}
ROUNDINGS, COARSE = 100.0, 100.0
"""Units in the last place above which an error is examined, and the multiple of the plain task's error that gets a note."""
FIGURE = "error_to_plain"
NOTE = "its error is {:.2g} times that of {}, as if computed in a shorter format"


def suspicious(found: Verification, answer: Sequence[Leaf]) -> bool:
    """Whether an answer that passed is further off than the rounding of its format explains."""
    least = min((EPS[leaf.dtype] for leaf in answer if leaf.dtype in EPS), default=math.inf)
    return found.status == "passed" and (found.max_rel or 0.0) > ROUNDINGS * least


def relative_error(answer: Sequence[Leaf], right: Sequence[Leaf]) -> float:
    """The norm of the error over all floating arrays, as a share of the right answer's norm."""
    off = size = 0.0
    for mine, theirs in zip(answer, right, strict=True):
        if not verify.is_floating(mine.dtype):
            continue
        one, other, space = verify.side_by_side(mine, theirs)
        sound = space.isfinite(other) & space.isfinite(one)
        one, other = space.where(sound, one, 0), space.where(sound, other, 0)
        off, size = math.hypot(off, float(space.linalg.norm(one - other))), math.hypot(size, float(space.linalg.norm(other)))
    return off / size if size else 0.0


def error_to_plain(answer: Sequence[Leaf], plain: Sequence[Leaf], right: Sequence[Leaf]) -> float:
    """The error of an answer divided by that of the plain one, which counts as at least half a rounding."""
    least = min((EPS[leaf.dtype] for leaf in answer if leaf.dtype in EPS), default=0.0) / 2
    own = max(relative_error(plain, right), least)
    return relative_error(answer, right) / own if own else 1.0


def measured_error(
    bench: Bench, be: Any, task: Task, got: Sequence[Leaf], found: tuple[Any, str, bool], seen: Verification
) -> Verification:
    """The verification, with the error relative to the plain task's if it is so large that it has to be compared with the exact answer."""
    from steelyard.engine.reference import answer_of, exact

    varied = not all(variant.asked for variant, _ in bench.chain)
    if not varied or task.standard is not None or task.tolerance is not None or not suspicious(seen, got):
        return seen
    with contextlib.suppress(Exception):
        if "fp64" in found[1]:
            right, plain = found[0], answer_of(bench, *bench.standard(task), mode=True)
        else:
            right, plain = exact(bench, be, task)[0], found[0]
        if right is not None:
            times = error_to_plain(got, plain, right)
            note = NOTE.format(times, "the plain task") if times > COARSE else ""
            return replace(seen, figures={**seen.figures, FIGURE: times}, message="; ".join(part for part in (seen.message, note) if part))
    return seen
