"""Wider inputs, for problems whose own inputs are so narrow that a candidate can pass without doing the work.

`relu` of numbers between 0 and 1 is the identity, and the mean of a million of them is one half. Inputs of the same shapes and formats
with other signs, sizes and orders show the difference. They may be invalid for a problem (probabilities, sorted numbers), so an answer
that is wrong only for wider inputs is called narrow, not wrong. Integers stay as they are, because they may be indices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from steelyard.measuring.leaves import Array, Draws, as_format, copied, is_floating, mapped, space_of, widened

SCALE, FAR, RARE, LEAST_SHARE = 8.0, 100.0, 0.001, 1e-4


def _signs(array: Array, chance: Draws) -> Array:
    return widened(array) * _up_or_down(array, chance)


def _scale(array: Array, chance: Draws) -> Array:
    return widened(array) * SCALE


def _outliers(array: Array, chance: Draws) -> Array:
    share = max(RARE, 1.0 / max(1, _size(array)))
    return widened(array) * (1.0 + (FAR - 1.0) * widened(chance.uniform(array) < share))


def _shuffled(array: Array, chance: Draws) -> Array:
    if not array.shape or array.shape[0] < 2:
        return array
    return array[chance.order(array.shape[0], array)]


def _tails(array: Array, chance: Draws) -> Array:
    share = widened(chance.uniform(array))
    return widened(array) / (share + LEAST_SHARE) ** 0.5


def _up_or_down(array: Array, chance: Draws) -> Array:
    return widened(chance.uniform(array) < 0.5) * 2.0 - 1.0


def _size(array: Array) -> int:
    size = 1
    for length in array.shape:
        size *= int(length)
    return size


WIDENINGS: dict[str, Callable[[Array, Draws], Array]] = {
    "signs": _signs, "scale": _scale, "outliers": _outliers, "shuffled": _shuffled, "tails": _tails,
}  # fmt: skip
"""By name: random signs, 8 times as large, one in a thousand 100 times as large, rows in another order, heavy tails."""


def widen(inputs: Sequence[Any], name: str, seed: bytes, kept: Collection[int] = ()) -> list[Any]:
    """Return inputs under a widening; those in `kept`, integers and values that are not finite stay as they are."""
    chance = Draws(int.from_bytes(hashlib.blake2b(name.encode(), key=seed[:64], digest_size=8).digest(), "little"))
    change = WIDENINGS[name]

    def widened_one(array: Array) -> Array:
        if not is_floating(array):
            return copied(array)
        space, made = space_of(array), as_format(change(array, chance), array)
        return space.where(space.isfinite(widened(array)), made, array)

    return [item if place in kept else mapped(item, widened_one) for place, item in enumerate(inputs)]
