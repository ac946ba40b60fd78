"""Other values in the inputs of a task, written where the inputs lie, and what all inputs are."""

from __future__ import annotations

import collections
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.model.task import Task

CHANGING = (list, set, collections.deque, bytearray)
TILE = 65_537
"""Places for which a change is drawn; in larger arrays they repeat, and line up with no row."""

FEW = ((1 / 512, -1.0), (1 / 64, -1.0), (1 / 8, 0.5))
"""Shares of an array, and what they are multiplied by, to find what looks at some of its values alone: the first that shows decides."""

Change = Callable[[Any], Any]


def halved(x: Any) -> Any:
    """Other values of the same signs, order and structure: what is sorted, masked or positive stays so."""
    return x * 0.5


def negated(x: Any) -> Any:
    """For answers that do not depend on scale."""
    return -x


def rolled(x: Any) -> Any:
    """For lists of numbers, which may be indices or sizes: the same ones in another order."""
    return [*x[1:], *x[:1]]


def spoiled(x: Any) -> Any:
    """Values unlikely as results; integers, which may be indices, all become their minimum."""
    return -1 - x if is_floating(x) else x * 0 + x.min()


def is_floating(x: Any) -> bool:
    """Whether an array of numpy or torch holds fractions."""
    return bool(x.dtype.kind in "fc") if isinstance(x, np.ndarray) else bool(x.is_floating_point() or x.is_complex())


@dataclass(frozen=True)
class Sprinkled:
    """Some of the values halved, or of the other sign, at places drawn by a seed: never the same, and not where a few are looked at.

    Halving and turning a sign round nothing, so that the same change of a wider copy gives the same numbers.
    """

    seed: int
    share: float
    by: float
    rest: float = 1.0
    """What all others are multiplied by."""

    def __call__(self, x: Any) -> Any:
        count = int(np.prod(x.shape, dtype=np.int64))
        tile = np.random.default_rng(self.seed).random(min(TILE, max(1, count))) < self.share
        tile[np.random.default_rng(self.seed + 1).integers(len(tile))] = True
        mask: Any = np.resize(tile, count).reshape(x.shape) if isinstance(x, np.ndarray) else _spread(tile, x)
        rest = x if self.rest == 1.0 else x * self.rest
        return np.where(mask, x * self.by, rest) if isinstance(x, np.ndarray) else rest.where(~mask, x * self.by)


def _spread(tile: np.ndarray[Any, Any], x: Any) -> Any:
    """The places of a tile, again and again, on the device of a tensor."""
    made = x.new_tensor(tile, dtype=(x != x).dtype)
    count = x.numel()
    return made.repeat(-(-count // len(tile)))[:count].reshape(x.shape)


@dataclass(frozen=True)
class Reordered:
    """Whole numbers permuted along the longest axis, all lanes alike, so that indices stay valid.

    With `drawn` some come twice and others not at all, so that sorting or counting them answers something else.
    """

    seed: int
    drawn: bool

    def __call__(self, x: Any) -> Any:
        axis = int(np.argmax(x.shape))
        rng, count = np.random.default_rng(self.seed), x.shape[axis]
        order = rng.integers(0, count, count) if self.drawn else rng.permutation(count)
        return np.take(x, order, axis) if isinstance(x, np.ndarray) else x.index_select(axis, x.new_tensor(order, dtype=_longs(x)))


def _longs(x: Any) -> Any:
    """The framework's format for indices."""
    return x.new_tensor([0]).long().dtype


@dataclass(frozen=True)
class Replaced:
    """Given values in place of those that an array has."""

    values: np.ndarray[Any, Any]

    def __call__(self, x: Any) -> Any:
        return self.values.astype(x.dtype) if isinstance(x, np.ndarray) else x.new_tensor(self.values)


def in_any_order(values: np.ndarray[Any, Any]) -> bool:
    """Whether whole numbers may be put in another order: what ascends may be bounds or sizes that have to."""
    if values.ndim == 0 or values.size < 2 or values.dtype.kind not in "iub":
        return False
    steps = np.diff(values.astype(np.int64), axis=int(np.argmax(values.shape)))
    return bool((steps < 0).any())


def inputs(task: Task) -> dict[str, Any]:
    """Everything that goes into a call, by place: `args[0]`, `kwargs.mask`, `args[1][2]`; a list of plain values is one thing."""
    return dict([*_places(tuple(task.args), "args"), *_places(dict(task.kwargs), "kwargs")])


def _places(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _places(item, f"{path}.{key}")
    elif isinstance(value, tuple) or (isinstance(value, list) and not _plain_list(value)):
        for index, item in enumerate(value):
            yield from _places(item, f"{path}[{index}]")
    else:
        yield path, value


def are_numbers(value: Any) -> bool:
    """Whether it is a list of several numbers."""
    return isinstance(value, list) and len(value) > 1 and all(type(item) in (int, float) for item in value)


def _plain_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (str, int, float, complex, type(None))) for item in value)


def prints(be: Any, items: Mapping[str, Any]) -> dict[str, str]:
    """A fingerprint of each input that can change: arrays, lists of plain values, sets, queues, bytes."""
    made = {}
    for path, item in items.items():
        with contextlib.suppress(Exception):
            found = be.fingerprint(item)
            if found is None and isinstance(item, CHANGING):
                found = hashlib.blake2b(repr(item).encode(), digest_size=16).hexdigest()
            if found is not None:
                made[path] = found
    return made


@contextlib.contextmanager
def altered(be: Any, array: Any, change: Change) -> Iterator[bool]:
    """Change an array's values in place for the body; yields whether that worked."""
    if isinstance(array, list):
        before, array[:] = list(array), change(array)
        try:
            yield array != before
        finally:
            array[:] = before
        return
    try:
        before = be.copy(array)
        done = before is not array and be.alter(array, change)
    except (RuntimeError, MemoryError):
        done = False
    try:
        yield done
    finally:
        if done:
            be.alter(array, lambda _: before)
