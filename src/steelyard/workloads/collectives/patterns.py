"""Data whose sums are exact in every format and whose place is recognisable, so that a collective is checked to the last value.

A rank's data repeats with a prime period, so that parts which were swapped or shifted do not look alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PERIOD = 251
SUMMED, MOVED = 5, 61
"""Values stay below these: 62 ranks sum to less than 256, which every format but those of 8 bits holds exactly."""


def values(rank: int, count: int, below: int) -> np.ndarray[Any, Any]:
    """The data of one rank: whole numbers that differ from rank to rank."""
    import numpy as np

    return np.resize((np.arange(PERIOD) * (rank + 1) + 31 * rank) % below, count).astype(np.uint8)


def sums(ranks: int, count: int) -> np.ndarray[Any, Any]:
    """The sum of all ranks' data."""
    import numpy as np

    total = np.zeros(count, np.int32)
    for rank in range(ranks):
        total += values(rank, count, SUMMED)
    return total


def parts(ranks: int, count: int, start: int, stop: int) -> np.ndarray[Any, Any]:
    """The same part of what each rank sends, one after the other."""
    import numpy as np

    return np.concatenate([values(rank, count, MOVED)[start:stop] for rank in range(ranks)])
