"""Null candidates: answers that compute nothing, or next to nothing. A problem for which one of them passes is weak."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from steelyard.engine.referee.expecting import Expected
from steelyard.measuring.closeness import spread_of, structure
from steelyard.measuring.leaves import PLAIN, Array, Piece, arrays_of, as_format, is_array, is_floating, mapped, pieces, space_of, widened

SAMPLE = 100
"""A sampling candidate reads one in this many rows or elements."""
ALIKE = 1e-3
"""An answer counts as a null candidate's if every element differs by at most this share of the typical size (RMS)."""

Answer = Callable[[Sequence[Any]], Any]
Null = Callable[[Expected, Any, Answer], Any]
"""Makes an answer from the expected one, the answer to another draw, and calls of the reference; None if it cannot."""


def _zeros(expected: Expected, other: Any, ask: Answer) -> Any:
    return each(expected.answer, lambda array: array * 0)


def _constant(expected: Expected, other: Any, ask: Answer) -> Any:
    """The mean of the answer to another draw, in each array."""
    sources = iter(pieces(other))

    def filled(array: Array) -> Array:
        return as_format(widened(array) * 0 + _mean(next(sources).array, array), array)

    return each(expected.answer, filled)


def _mean(array: Array, like: Array) -> float:
    mean = spread_of(array)[0]
    return mean if is_floating(like) else float(round(mean))


def _last(expected: Expected, other: Any, ask: Answer) -> Any:
    return None if structure(pieces(other), expected.pieces) else other


def _first_rows(expected: Expected, other: Any, ask: Answer) -> Any:
    """The first hundredth of the rows, at least one row, repeated."""
    return each(expected.answer, lambda array: _repeated(array, 0)) if any(_long(item) for item in expected.pieces) else None


def _sample(expected: Expected, other: Any, ask: Answer) -> Any:
    """The reference's answer to inputs whose first hundredth is repeated over the rest."""
    inputs = [mapped(item, _sampled) for item in expected.inputs]
    found = ask(inputs)
    return None if structure(pieces(found), expected.pieces) else found


def _sampled(array: Array) -> Array:
    shape = tuple(array.shape)
    if not is_floating(array) or not shape or max(shape) < 2:
        return array
    return _repeated(array, shape.index(max(shape)))


def _long(piece: Piece) -> bool:
    return bool(piece.shape) and piece.shape[0] > 1


def _repeated(array: Array, axis: int) -> Array:
    """Return an array with its first hundredth along an axis repeated over the rest."""
    if not tuple(array.shape) or array.shape[axis] < 2:
        return array
    order = np.arange(array.shape[axis]) % max(1, array.shape[axis] // SAMPLE)
    if space_of(array) is np:
        return np.take(array, order, axis)
    return array.index_select(axis, space_of(array).from_numpy(order).to(array.device))


def input_numbered(number: int) -> Null:
    """Return the null candidate that returns an input, for every array of the answer that has its shape."""

    def given(expected: Expected, other: Any, ask: Answer) -> Any:
        source = arrays_of(list(expected.inputs))[number]
        fits = [piece for piece in expected.pieces if piece.shape == tuple(source.shape)]
        if not fits:
            return None
        return each(expected.answer, lambda array: as_format(source, array) if array.shape == source.shape else array * 0)

    return given


NULLS: dict[str, Null] = {
    "zeros": _zeros, "a constant": _constant, "the answer to other inputs": _last, "the first rows, repeated": _first_rows,
    "a 1 % sample of the inputs": _sample,
}  # fmt: skip
LAST = "the answer to other inputs"


def candidates(expected: Expected) -> Iterator[tuple[str, Null]]:
    """Yield all null candidates for a problem, by name."""
    yield from NULLS.items()
    for number, array in enumerate(arrays_of(list(expected.inputs))):
        if any(piece.shape == tuple(array.shape) for piece in expected.pieces):
            yield f"input {number + 1} itself", input_numbered(number)


def each(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return the same structure with its arrays and plain numbers changed."""
    if is_array(value):
        return change(value.detach() if space_of(value) is not np else value)
    if isinstance(value, PLAIN):
        return type(value)(change(np.asarray(value)).item())
    if isinstance(value, dict):
        return {key: each(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [each(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def alike(output: Any, null: Any) -> bool:
    """Whether an answer is that of a null candidate, but for rounding."""
    mine, theirs = pieces(output), pieces(null)
    if structure(mine, theirs) or not mine:
        return False
    return all(_near(one.array, as_format(other.array, one.array)) for one, other in zip(mine, theirs, strict=True))


def _near(one: Array, other: Array) -> bool:
    space, size = space_of(one), math.prod(one.shape)
    if not size:
        return True
    a, b = widened(one), widened(other)
    same = (a == b) | (space.isnan(a) & space.isnan(b))
    off = space.where(same, 0.0, space.abs(a - b))
    rms = math.sqrt(float((space.where(space.isfinite(b), space.abs(b), 0.0) ** 2).mean()))
    return bool((off <= ALIKE * rms).all())
