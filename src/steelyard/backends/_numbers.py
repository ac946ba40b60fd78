"""Random numbers with the same bits on every backend and device.

Each array is a stream of Philox 4x64-10, whose numbers can be computed in any order from their position alone. numpy implements it
in C; a device computes the same words with int64 arithmetic, which every framework has. Words become numbers by operations that
are exact, or rounded once by IEEE rules, so that every device and compiler gives the same result.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ROUNDS = 10
FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
LOW, FULL, SIGN = 2**32 - 1, 2**64 - 1, 2**63

QUANTILES = 2**16
GRID = 2.0**-20
JITTER = 2.0**-31
"""Quantiles are multiples of GRID, exact in float32, and numbers are spread between them in multiples of JITTER."""

CHUNK = 2**16
"""How many numbers numpy makes at a time: few enough to stay in a cache."""

Array = Any
Stream = tuple[int, int]


def stream_of(seed: int, draw: int) -> Stream:
    """Return the stream of one array, which is a key: the seed of the run and the number of the array."""
    return seed & FULL, draw & FULL


def words(blocks: Array, stream: Stream) -> tuple[Array, Array, Array, Array]:
    """Return the four words of each block of a stream; `blocks` are int64 block numbers with two's complement wrap-around."""
    return mixed(blocks, keys_of(stream))


def keys_of(stream: Stream) -> list[tuple[int, int]]:
    """Return the keys of all rounds for a stream."""
    return [(signed((stream[0] + turn * STEPS[0]) & FULL), signed((stream[1] + turn * STEPS[1]) & FULL)) for turn in range(ROUNDS)]


def mixed(blocks: Array, keys: Sequence[tuple[Any, Any]]) -> tuple[Array, Array, Array, Array]:
    """Return the four words of each block from the keys of the rounds; keys may be arrays, so that one program serves all streams."""
    nothing = blocks & 0
    counter = [blocks + 1, nothing, nothing, nothing]
    for first, second in keys:
        (high, low), (high_2, low_2) = (_product(factor, part) for factor, part in zip(FACTORS, counter[::2], strict=True))
        counter = [high_2 ^ counter[1] ^ first, low_2, high ^ counter[3] ^ second, low]
    return counter[0], counter[1], counter[2], counter[3]


def _product(factor: int, x: Array) -> tuple[Array, Array]:
    """The upper and lower half of a product of 64 by 64 bits, from four products of 32 by 32."""
    top, bottom = factor >> 32, factor & LOW
    x_top, x_bottom = (x >> 32) & LOW, x & LOW
    middle = x_bottom * top + ((x_bottom * bottom >> 32) & LOW)
    other = x_top * bottom + (middle & LOW)
    return x_top * top + ((middle >> 32) & LOW) + ((other >> 32) & LOW), x * signed(factor)


def signed(number: int) -> int:
    """Return 64 bits read as a signed number."""
    return number - 2 * SIGN if number >= SIGN else number


@functools.cache
def quantiles() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the normal quantiles at the midpoints of equal shares, rounded to the grid so that a library's last bits do not matter."""
    inverse = statistics.NormalDist().inv_cdf
    lower = np.asarray([inverse((place + 0.5) / QUANTILES) for place in range(QUANTILES // 2)])
    rounded = (np.round(lower / GRID) * GRID).astype(np.float32)
    return np.concatenate([rounded, -rounded[::-1]])


def normals(halves: Array, table: Array, fractions: Callable[[Array], Array] = lambda whole: whole) -> Array:
    """Return normal numbers from 32-bit words: a quantile, plus or minus a step smaller than the distance to the next one.

    The step is exact, so it does not matter whether a compiler rounds product and sum separately. `fractions` converts integers to
    the table's format, for a framework whose products could have another one.
    """
    return table[(halves >> 16) & 0xFFFF] + fractions((halves & 0xFFFF) - 0x8000) * JITTER


def between(doubles: Array, low: float, high: float) -> Array:
    """Return uniform numbers in [low, high) from doubles that hold 53-bit integers."""
    return doubles * 2.0**-53 * (high - low) + low


def whole(words: Array, low: int, high: int) -> Array:
    """Return integers in [low, high) from words: the upper 31 bits scaled to the range, or the remainder for a wide range."""
    span = high - low
    if span < 1:
        raise ValueError(f"no whole number lies in [{low}, {high})")
    return (((words >> 33) & (SIGN // 2**32 - 1)) * span >> 31) + low if span < SIGN // 2**32 else (words & (SIGN - 1)) % span + low


class HostNumbers:
    """One stream's numbers, made by numpy's own Philox generator."""

    def __init__(self, stream: Stream) -> None:
        self.generator = np.random.Philox(key=np.asarray(stream, dtype=np.uint64))

    def normals(self, count: int, *, wide: bool = False) -> np.ndarray[Any, Any]:
        """Return normal numbers in float32, or in float64 if `wide`."""
        table = quantiles()
        return self._made(count, np.float64 if wide else np.float32, 2, lambda words: normals(words.view(np.int32), table))

    def between(self, low: float, high: float, count: int) -> np.ndarray[Any, Any]:
        """Uniform numbers in [low, high)."""
        return self._made(count, np.float64, 1, lambda words: between((words >> 11 & (2**53 - 1)).astype(np.float64), low, high))

    def whole(self, low: int, high: int, count: int) -> np.ndarray[Any, Any]:
        """Whole numbers in [low, high)."""
        return self._made(count, np.int64, 1, lambda words: whole(words, low, high))

    def _made(
        self, count: int, dtype: Any, per_word: int, make: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any]:
        found = np.empty(count, dtype=dtype)
        for begin in range(0, count, CHUNK):
            part = found[begin : begin + CHUNK]
            part[:] = make(self.generator.random_raw(-(-len(part) // per_word)).view(np.int64))[: len(part)]
        return found
