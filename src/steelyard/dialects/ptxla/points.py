"""Times and speedups as the original computes them: a centre and a standard deviation, propagated through ratios and means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.dialects.ptxla.rows import seconds

WARM_UP = 3
"""Repeats before those that count: the first compiles, the next two fill caches."""
NORMAL_MAD = 1.4826
"""The factor from the median distance from the median to a standard deviation."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A time or a speedup, its standard deviation, and how many figures it is made of."""

    value: float
    std: float = 0.0
    n: int = 1

    @property
    def rounded(self) -> tuple[float, float]:
        """Eight decimals, which is what is printed."""
        return round(self.value, 8), round(self.std, 8)


def _mean(times: Sequence[Any]) -> TimePoint | str:
    """Return the mean of the repeats after the warm-up, with the standard deviation of a sample."""
    kept = _after_warm_up(times)
    return kept if isinstance(kept, str) else _of(kept)


def _of(kept: Sequence[float]) -> TimePoint:
    n = len(kept)
    mean = math.fsum(kept) / n
    return TimePoint(mean, math.sqrt(math.fsum([(value - mean) ** 2 for value in kept]) / (n - 1)) if n > 1 else 0.0, n)


def _median(times: Sequence[Any]) -> TimePoint | str:
    """Return the median, which one slow repeat does not move, with a standard deviation from the median of distances."""
    kept = _after_warm_up(times)
    if isinstance(kept, str):
        return kept
    centre = percentile(kept, 50)
    return TimePoint(centre, NORMAL_MAD * percentile([abs(value - centre) for value in kept], 50), len(kept))


def _after_warm_up(times: Sequence[Any]) -> list[float] | str:
    if len(times) <= WARM_UP:
        return f"fewer than {WARM_UP + 1} repeats"
    return seconds(times[WARM_UP:]) or "a time is null, zero or impossible"


def _compile(times: Sequence[Any]) -> TimePoint | str:
    """Return the extra time of the first repeat."""
    if len(times) < 2:
        return "fewer than 2 repeats"
    kept = seconds(times)
    if kept is None:
        return "a time is null, zero or impossible"
    beyond = kept[0] - math.fsum(kept[1:]) / (len(kept) - 1)
    return TimePoint(beyond) if beyond > 0 else "the first repeat was not slower than the others, so no compile time is known"


Measure = Callable[[Sequence[Any]], TimePoint | str]
"""From the list of a row's times to its point, or to the reason why there is none."""
POINTS: dict[str, Measure] = {
    "exec": _mean, "mean": _mean, "median": _median, "compile": _compile,
}  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, with linear interpolation between neighbours."""
    ordered = sorted(values)
    place = share / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def speedup(time: TimePoint, base: TimePoint) -> TimePoint:
    """Return how many times faster than the base, with the combined error of both."""
    ratio = base.value / time.value
    return TimePoint(ratio, ratio * math.hypot(time.std / time.value, base.std / base.value))


def geomean(points: Sequence[TimePoint]) -> TimePoint:
    """The geometric mean and its error."""
    n = len(points)
    mean = math.exp(math.fsum([math.log(point.value) for point in points]) / n)
    return TimePoint(mean, mean / n * math.sqrt(math.fsum([(point.std / point.value) ** 2 for point in points])), n)
