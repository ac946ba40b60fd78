"""Finds out why a program's answers are wrong, by trying other orders of inputs and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steelyard.artifacts.signature import TensorType

MOST_SWAPS, MOST_ORDERS = 28, 6
Arrays = Sequence[np.ndarray[Any, Any]]


def mismatch(what: str, recorded: Sequence[TensorType], kinds: Sequence[TensorType]) -> str:
    """Return how recorded arrays differ from a program's inputs or outputs; empty if they match."""
    if len(recorded) != len(kinds):
        return f"the program has {len(kinds)} {what}s, and {len(recorded)} are recorded"
    wrong = [number for number, (item, kind) in enumerate(zip(recorded, kinds, strict=True)) if not fits(item, kind)]
    if not wrong:
        return ""
    first = wrong[0]
    told = f"{what} {first} of the program is {kinds[first]}, and {recorded[first]} is recorded for it"
    free = list(range(len(recorded)))
    order = []
    for kind in kinds:
        match = next((number for number in free if fits(recorded[number], kind)), None)
        if match is None:
            return told
        free.remove(match)
        order.append(match)
    return f"{told}: the {what}s are recorded in another order"


def fits(item: TensorType, kind: TensorType) -> bool:
    """Whether an array matches a type, which may leave sizes open."""
    sizes = len(item.shape) == len(kind.shape) and all(theirs in (None, ours) for ours, theirs in zip(item.shape, kind.shape, strict=True))
    return item.dtype == kind.dtype and sizes


def reason(call: Callable[..., Sequence[Any]], be: Any, inputs: Arrays, got: Sequence[Any], want: Sequence[Any]) -> str:
    """Return why an answer is wrong, in words; `got` and `want` are leaves."""
    answers, wanted = [leaf.data for leaf in got], [leaf.data for leaf in want]
    if order := _other_order(answers, wanted):
        places = ", ".join(f"output {number} is the recorded output {place}" for number, place in enumerate(order) if number != place)
        return f"the outputs are in another order: {places}"
    if len(answers) == len(wanted) and (swap := _swapped(call, be, inputs, wanted)):
        return f"the inputs are in another order: with inputs {swap[0]} and {swap[1]} swapped the answer is right"
    return "no other order of inputs or outputs makes it right: a weight or the program itself differs"


def _other_order(answers: Arrays, wanted: Arrays) -> list[int]:
    """Return which recorded output each output is, if they are in another order; empty otherwise."""
    if len(answers) != len(wanted) or not len(answers) > 1:
        return []
    free, order = list(range(len(wanted))), []
    for answer in answers:
        match = next((number for number in free if _alike(answer, wanted[number])), None)
        if match is None:
            return []
        free.remove(match)
        order.append(match)
    return order if order != sorted(order) else []


def _swapped(call: Callable[..., Sequence[Any]], be: Any, inputs: Arrays, wanted: Arrays) -> tuple[int, int] | None:
    pairs = [(one, two) for one, two in itertools.combinations(range(len(inputs)), 2)
             if inputs[one].shape == inputs[two].shape and inputs[one].dtype == inputs[two].dtype]  # fmt: skip
    for one, two in pairs[:MOST_SWAPS]:
        tried = list(inputs)
        tried[one], tried[two] = tried[two], tried[one]
        answer = [found[1] for value in call(*map(be.place, tried)) if (found := be.leaf(value))]
        if len(answer) == len(wanted) and all(map(_alike, answer, wanted)):
            return one, two
    return None


def _alike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    scale = float(np.nanmax(np.abs(other))) if other.size else 0.0
    return bool(np.allclose(one, other, rtol=1e-2, atol=1e-2 * scale, equal_nan=True))
