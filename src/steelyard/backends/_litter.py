"""Fills the memory that the next call gets for its results with random numbers, so that it holds no old answer.

An allocator hands out the memory that was freed last. A call that leaves part of its result unwritten would return what an earlier
call, or the reference, left there. Zeros or NaN could pass as an answer, or be recognised by a candidate that looks for them; random
numbers of the result's scale do neither. They are drawn anew each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCKS: tuple[tuple[int, int], ...] = ((2**12, 16), (2**20, 4), (2**25, 1))
"""(Largest size in bytes, number of blocks to fill): an allocator keeps many small blocks ready, and takes huge ones from the system,
which are zeroed."""
ALIGNED = 64 + 32
"""Bytes that the C library adds when it looks for a block that is aligned to 64."""
PATTERN = 8191
"""How many numbers are drawn; larger blocks repeat them. It is prime, so that the repeats do not line up with the rows of an array."""

SEEN = 2**14
"""How many values an array's scale is estimated from."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sketch:
    """Format, shape and some values of one array of an answer, so that the array itself need not be kept."""

    dtype: str
    shape: tuple[int, ...]
    some: Array

    @property
    def count(self) -> int:
        """How many values the array has."""
        return math.prod(self.shape)


def sketch(leaf: Any) -> Sketch:
    """Return the sketch of an array, read on its device if it is on one."""
    if leaf.there is None:
        return Sketch(leaf.dtype, leaf.shape, np.array(leaf.data.reshape(-1)[:SEEN]))
    return Sketch(leaf.dtype, leaf.shape, np.array(leaf.read(leaf.there.reshape(-1)[:SEEN])))


def pattern(rng: np.random.Generator, like: Array) -> Array:
    """Return finite numbers that could be in an answer: floats of its scale, or integers in its range and a little beyond."""
    seen = like.reshape(-1)
    if like.dtype.kind == "b":
        return rng.integers(0, 2, PATTERN).astype(np.bool_)
    if like.dtype.kind in "iu":
        low, high = (int(seen.min()), int(seen.max())) if seen.size else (0, 1)
        info = np.iinfo(like.dtype)
        span = max(1, high - low)
        low, high = max(int(info.min), low - span // 4), min(int(info.max), high + span // 4 + 1)
        return rng.integers(low, high, PATTERN, dtype=like.dtype, endpoint=True)
    finite = np.abs(seen[np.isfinite(seen)]).astype(np.float64)
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size and finite.max() > 0 else 1.0
    scale = scale if math.isfinite(scale) else 1.0
    drawn = rng.standard_normal(PATTERN) * scale * rng.uniform(0.7, 1.4)
    with np.errstate(all="ignore"):
        whole = drawn + 1j * rng.standard_normal(PATTERN) * scale if like.dtype.kind == "c" else drawn
        made = whole.astype(like.dtype)
    return np.where(np.isfinite(made), made, 0).astype(like.dtype)


def litter_host(
    answer: Sequence[Sketch],
    written: Callable[[Array, str], Array] = lambda drawn, dtype: drawn.view(np.uint8),
    width: Callable[[Sketch], int] = lambda like: like.some.dtype.itemsize,
) -> None:
    """Fill the blocks that the host's allocator would hand out next for such arrays, and free them again.

    `written` returns numbers as bytes in one of the framework's formats, and `width` the bytes of one. All blocks are taken before numbers
    are drawn: these would take the beginning of a block with an old answer, whose rest would stay as it is. And it is done twice: a
    block that was released is merged with a smaller one before it, and then starts with that one's old values.
    """
    known = [like for like in answer if like.count and like.some.dtype.kind in "biufc"]
    rng = np.random.default_rng()
    for _ in range(2):
        held = [_taken(like.count * width(like)) for like in known]
        for like, blocks in zip(known, held, strict=True):
            _fill(blocks, written(pattern(rng, like.some), like.dtype))
        while held:
            release(held.pop())


def _taken(size: int) -> list[Array]:
    """Return free blocks of this size, and then some of a little more: frameworks request aligned memory, for which the C library looks for
    more and gives the rest back. What was freed then is too small for that, until it is merged with its neighbour.
    """
    number = next((count for largest, count in BLOCKS if size <= largest), 0)
    return [np.empty(room, np.uint8) for room in (size, size + ALIGNED) for _ in range(number)]


def _fill(blocks: Sequence[Array], drawn: Array) -> None:
    for block in blocks:
        repeat_into(block, drawn)


def repeat_into(block: Array, drawn: Array) -> None:
    """Fill a block with repeats of a pattern."""
    whole = len(block) // len(drawn)
    if whole:
        block[: whole * len(drawn)].reshape(whole, len(drawn))[:] = drawn
    block[whole * len(drawn) :] = drawn[: len(block) - whole * len(drawn)]


def release(held: list[Any]) -> None:
    """Free blocks in reverse order, so that an allocator that reuses the last freed block starts with the first one again."""
    while held:
        held.pop()
