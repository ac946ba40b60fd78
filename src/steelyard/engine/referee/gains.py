"""How much time a candidate saves, beyond what chance can explain: in blocks of calls, and in calls one by one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from steelyard.measuring.stats import t_quantile

SURE, CHANCE = 3.0, 0.99865
"""Standard errors that count as more than chance, and the share of normal numbers below them."""
SUPPORTED = 0.5
"""The share of a gain in blocks that calls one by one must show as well."""

CLAIMED = 0.25
"""A gain of at least this share of the reference's time must also show in calls one by one; a smaller one can be lost in their noise."""


def excess(base: Sequence[float], head: Sequence[float]) -> float:
    """Return how much larger the head's values are than the base's, less what chance can explain."""
    if len(base) < 2 or len(head) < 2:
        return 0.0
    (low, one), (high, other) = _middle(base), _middle(head)
    return high - low - math.hypot(_sure(base) * one, _sure(head) * other)


def beyond(base: Sequence[float], head: Sequence[float]) -> float:
    """Return how much larger the head's values are, less what chance can explain by the spread of the base's.

    The head's own spread does not count, because a candidate could widen it.
    """
    if len(base) < 2 or not head:
        return 0.0
    (low, error), high = _middle(base), statistics.median(head)
    return high - low - _sure(base) * error * math.sqrt(1 + len(base) / len(head))


def _sure(values: Sequence[float]) -> float:
    """Return how many standard errors count as more than chance: the fewer values, the less is known of their spread."""
    return t_quantile(CHANCE, len(values) - 1)


def saved_alone(serial: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the bounds of the seconds that a single call saves, from single calls of both arms."""
    middle, error = _centre([base - head for base, head in serial])
    return middle - SURE * error, middle + SURE * error


def shown_alone(serial: Sequence[tuple[float, float]]) -> bool:
    """Whether calls one by one surely save time; true if there are too few to decide."""
    return len(serial) < 2 or saved_alone(serial)[0] > 0


def undecided(gain: float, serial: Sequence[tuple[float, float]]) -> bool:
    """Whether calls one by one neither show a gain that blocks show nor rule it out."""
    if gain <= 0 or len(serial) < 2:
        return False
    low, high = saved_alone(serial)
    return low <= 0 and high >= SUPPORTED * gain


def _centre(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of the means of all pairs of values, and its standard error, which is a fifth less than the median's."""
    held = np.asarray(values)
    means = (held[:, None] + held[None, :])[np.triu_indices(len(held))] / 2
    middle = float(np.median(means))
    return middle, 1.02 * 1.4826 * float(np.median(np.abs(held - middle))) / math.sqrt(len(held))


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and its standard error."""
    middle = statistics.median(values)
    return middle, 1.25 * 1.4826 * statistics.median(abs(value - middle) for value in values) / math.sqrt(len(values))
