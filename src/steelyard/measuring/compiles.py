"""Compares two compilers whose processes took turns: a ratio with its interval for each quantity that every process gave once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steelyard.measuring.paired import bounds
from steelyard.measuring.stats import median_interval
from steelyard.model.pair import PairPart
from steelyard.model.record import FEWEST, Figure


def weigh_values(base: Sequence[float], head: Sequence[float], unit: str) -> PairPart | None:
    """Return the ratio of values from pairs of processes: the k-th of base and head ran after each other, in drawn order.

    Times differ from process to process, so their interval is taken over pairs, as in any comparison. Sizes hardly differ: their interval
    covers every ratio of any two processes, so that a difference beyond the spread is a verdict. Fewer than six pairs give no interval,
    except for sizes that are the same in every process of an arm. None if a value is not positive.
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
    """Return an end of a log interval as a ratio; an infinite end becomes a finite number beyond any real ratio."""
    return math.exp(min(50.0, max(-50.0, end)))


def _figure(values: Sequence[float], unit: str) -> Figure:
    found = median_interval(np.asarray(values, float))
    low, high = found.ends if unit == "s" else (min(values), max(values)) if len(values) > 1 else (None, None)
    return Figure(found.centre, unit, "lower", low, high, len(values))
