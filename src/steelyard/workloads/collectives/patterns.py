"""Data for collectives with exact sums in every format and a different value at each place, so that every value can be checked.

A rank's data repeats with a prime period, so that swapped or shifted parts differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PERIOD = 251
SUMMED, MOVED = 5, 61
"""Limits for values that are summed and moved: 62 ranks sum to less than 256, which every format except 8-bit ones holds exactly."""


def values(rank: int, count: int, below: int) -> np.ndarray[Any, Any]:
    """Return the data of one rank: integers that differ from rank to rank."""
    import numpy as np

    return np.resize((np.arange(PERIOD) * (rank + 1) + 31 * rank) % below, count).astype(np.uint8)


def sums(ranks: int, count: int) -> np.ndarray[Any, Any]:
    """Return the sum of all ranks' data."""
    import numpy as np

    total = np.zeros(count, np.int32)
    for rank in range(ranks):
        total += values(rank, count, SUMMED)
    return total


def parts(ranks: int, count: int, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Return the same part of every rank's data, one after the other."""
    import numpy as np

    return np.concatenate([values(rank, count, MOVED)[start:stop] for rank in range(ranks)])
