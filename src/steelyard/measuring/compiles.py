"""Two compilers from processes that took turns: a ratio with its interval for each quantity that every process gave once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steelyard.measuring.paired import bounds
from steelyard.measuring.stats import median_interval
from steelyard.model.pair import PairPart
from steelyard.model.record import FEWEST, Figure


def weigh_values(base: Sequence[float], head: Sequence[float], unit: str) -> PairPart | None:
    """What values taken in pairs of processes say: the k-th of the base and the k-th of the head ran after each other, in drawn order.

    Times differ from process to process, so their interval is over pairs, as that of any comparison. Sizes hardly do: their interval
    has every ratio that any two processes gave, so that a difference beyond the spread is a verdict. Fewer than six pairs have no
    interval, but for sizes that are the same in every process of an arm. Nothing where a value is not positive.
    """
    if not base or len(base) != len(head) or min(*base, *head) <= 0:
        return None
    figures = (_figure(base, unit), _figure(head, unit))
    if unit == "s" and len(base) >= FEWEST:
        rows = np.log(np.asarray(head) / np.asarray(base))
        interval, p, _ = bounds(np.stack([rows, -rows], axis=1))
        return PairPart(math.exp(interval.centre), _ratio(interval.low), _ratio(interval.high), p, *figures)
    exact = unit != "s" and len(base) > 1 and len({*base}) == len({*head}) == 1
    known = exact or (unit != "s" and len(base) >= FEWEST)
    low, high = (min(head) / max(base), max(head) / min(base)) if known else (_ratio(-math.inf), _ratio(math.inf))
    return PairPart(figures[1].value / figures[0].value, low, high, None, *figures)


def _ratio(end: float) -> float:
    """An end of an interval of logarithms as a ratio that can be written down; one without an end lies beyond all that is compared."""
    return math.exp(min(50.0, max(-50.0, end)))


def _figure(values: Sequence[float], unit: str) -> Figure:
    found = median_interval(np.asarray(values, float))
    low, high = found.ends if unit == "s" else (min(values), max(values)) if len(values) > 1 else (None, None)
    return Figure(found.centre, unit, "lower", low, high, len(values))
