"""Finds the inputs that an answer depends on: any right candidate has to read these, and reading their bytes takes time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from steelyard.measuring.leaves import Array, Draws, arrays_of, copied, format_of, is_floating, mapped, pieces, space_of, widened

POSITIONS = 8
TRIES = 3
PATIENCE = 2.0
"""Time limit in seconds; inputs that were not tried by then do not count."""


def bytes_that_matter(inputs: Sequence[Any], ask: Callable[[list[Any]], Any], seed: int) -> float:
    """Return the bytes of the input arrays in which every element that was tried changes the answer.

    Zero if the reference does not give the same bits twice, because then a change proves nothing.
    """
    first = pieces(ask(list(inputs)))
    if not _equal(first, pieces(ask(list(inputs)))):
        return 0.0
    chance, until, found = Draws(seed), time.monotonic() + PATIENCE, 0.0
    for array in {id(array): array for array in arrays_of(list(inputs))}.values():
        if int(np.prod(array.shape)) and all(
            time.monotonic() < until and _matters(inputs, array, chance, ask, first) for _ in range(POSITIONS)
        ):
            found += float(array.nbytes)
    return found


def _matters(inputs: Sequence[Any], array: Array, chance: Draws, ask: Callable[[list[Any]], Any], first: Any) -> bool:
    """Whether another value at a random place changes the answer."""
    place = tuple(chance.whole(length) for length in array.shape)
    for value in _others(array, place, chance):
        try:
            answer = pieces(ask(_with(inputs, array, place, value)))
        except Exception:
            return False
        if not _equal(answer, first):
            return True
    return False


def _others(array: Array, place: tuple[int, ...], chance: Draws) -> Iterator[Any]:
    """Yield other values for an element: larger and smaller than all, or for integers the values of other elements."""
    if is_floating(array):
        space, wide = space_of(array), widened(array)
        size = space.abs(space.where(space.isfinite(wide), wide, 0.0))
        top = 8.0 * float(size.max()) + 1.0
        yield from (min(top, 240.0) if "8" in format_of(array) else top, -top, float(size[place]) * 0.5 + 0.25 * top)
    elif format_of(array) == "bool":
        yield not bool(array[place])
    else:
        for _ in range(TRIES):
            yield array[tuple(chance.whole(length) for length in array.shape)].item()


def _with(inputs: Sequence[Any], array: Array, place: tuple[int, ...], value: Any) -> list[Any]:
    def changed(each: Array) -> Array:
        if each is not array:
            return each
        made = copied(each)
        made[place] = value
        return made

    return [mapped(item, changed) for item in inputs]


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two answers agree in every value."""
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other, strict=True):
        a, b = mine.array, theirs.array
        if mine.shape != theirs.shape or not bool(((a == b) | ((a != a) & (b != b))).all()):
            return False
    return True
