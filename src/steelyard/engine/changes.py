"""Changing the values of a task's inputs in place, and listing the inputs."""

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
"""How many places are drawn for a change; larger arrays repeat them. It is prime, so that the repeats do not line up with rows."""

FEW = ((1 / 512, -1.0), (1 / 64, -1.0), (1 / 8, 0.5))
"""Shares of an array and the factors for their values, to detect code that reads only some values: the first with an effect decides."""

Change = Callable[[Any], Any]


def halved(x: Any) -> Any:
    """Return half of each value: signs, order and structure stay, so that what is sorted, masked or positive remains so."""
    return x * 0.5


def negated(x: Any) -> Any:
    """Return the negated values, for answers that do not depend on scale."""
    return -x


def rolled(x: Any) -> Any:
    """Return a list of numbers rotated by one: they may be indices or sizes, so only their order changes."""
    return [*x[1:], *x[:1]]


def spoiled(x: Any) -> Any:
    """Return values that are unlikely as results; integers, which may be indices, all become their minimum."""
    return -1 - x if is_floating(x) else x * 0 + x.min()


def is_floating(x: Any) -> bool:
    """Whether an array of numpy or torch holds floating-point or complex numbers."""
    return bool(x.dtype.kind in "fc") if isinstance(x, np.ndarray) else bool(x.is_floating_point() or x.is_complex())


@dataclass(frozen=True)
class Sprinkled:
    """Multiplies some of the values by `by`, at places drawn from a seed, so that code which reads only a few values cannot know them.

    Halving and negating do not round, so the same change of a copy in a wider format gives the same numbers.
    """

    seed: int
    share: float
    by: float
    rest: float = 1.0
    """Factor for all other values."""

    def __call__(self, x: Any) -> Any:
        count = int(np.prod(x.shape, dtype=np.int64))
        tile = np.random.default_rng(self.seed).random(min(TILE, max(1, count))) < self.share
        tile[np.random.default_rng(self.seed + 1).integers(len(tile))] = True
        mask: Any = np.resize(tile, count).reshape(x.shape) if isinstance(x, np.ndarray) else _spread(tile, x)
        rest = x if self.rest == 1.0 else x * self.rest
        return np.where(mask, x * self.by, rest) if isinstance(x, np.ndarray) else rest.where(~mask, x * self.by)


def _spread(tile: np.ndarray[Any, Any], x: Any) -> Any:
    """Return a tile repeated to the shape of a tensor, on its device."""
    made = x.new_tensor(tile, dtype=(x != x).dtype)
    count = x.numel()
    return made.repeat(-(-count // len(tile)))[:count].reshape(x.shape)


@dataclass(frozen=True)
class Reordered:
    """Permutes integers along the longest axis, all lanes alike, so that indices stay valid.

    With `drawn` some values occur twice and some not at all, so that sorting or counting them gives another result.
    """

    seed: int
    drawn: bool

    def __call__(self, x: Any) -> Any:
        axis = int(np.argmax(x.shape))
        rng, count = np.random.default_rng(self.seed), x.shape[axis]
        order = rng.integers(0, count, count) if self.drawn else rng.permutation(count)
        return np.take(x, order, axis) if isinstance(x, np.ndarray) else x.index_select(axis, x.new_tensor(order, dtype=_longs(x)))


def _longs(x: Any) -> Any:
    """Return the framework's format for indices."""
    return x.new_tensor([0]).long().dtype


@dataclass(frozen=True)
class Replaced:
    """Replaces an array's values with given ones."""

    values: np.ndarray[Any, Any]

    def __call__(self, x: Any) -> Any:
        return self.values.astype(x.dtype) if isinstance(x, np.ndarray) else x.new_tensor(self.values)


def in_any_order(values: np.ndarray[Any, Any]) -> bool:
    """Whether integers may be put in another order: ascending ones may be bounds or sizes, which must stay in order."""
    if values.ndim == 0 or values.size < 2 or values.dtype.kind not in "iub":
        return False
    steps = np.diff(values.astype(np.int64), axis=int(np.argmax(values.shape)))
    return bool((steps < 0).any())


def inputs(task: Task) -> dict[str, Any]:
    """Return every input of a call by its path: `args[0]`, `kwargs.mask`, `args[1][2]`; a list of plain values is one input."""
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
    """Whether a value is a list of several numbers."""
    return isinstance(value, list) and len(value) > 1 and all(type(item) in (int, float) for item in value)


def _plain_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (str, int, float, complex, type(None))) for item in value)


def prints(be: Any, items: Mapping[str, Any]) -> dict[str, str]:
    """Return a fingerprint of each input that can change: arrays, lists of plain values, sets, queues, bytes."""
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
