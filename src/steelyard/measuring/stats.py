"""Statistics without scipy, which a worker's environment may lack; the tests compare with scipy."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.model.record import Figure

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Interval:
    """A centre with its confidence interval over n values."""

    centre: float
    low: float
    high: float
    n: int

    @property
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """Both ends for a figure: None if there were too few values for an interval."""
        return (self.low, self.high) if math.isfinite(self.low) and math.isfinite(self.high) else (None, None)

    @property
    def relative(self) -> float:
        """Half-width as a share of the centre, which `--precision` limits."""
        return math.inf if self.centre == 0 else max(self.high - self.centre, self.centre - self.low) / abs(self.centre)


@functools.lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t by bisection of its distribution function."""
    if not 0 < p < 1 or df <= 0:
        raise ValueError(f"no t quantile for p={p}, df={df}")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 2.0
    while t_cdf(high, df) < p:
        high *= 2
        if high > 1e12:
            return high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
        if high - low < 1e-12 * max(1.0, high):
            break
    return (low + high) / 2


def t_cdf(t: float, df: float) -> float:
    """Distribution function of Student's t through the incomplete beta function."""
    if t * t < df:
        return 0.5 + math.copysign(0.5 * incomplete_beta(t * t / (df + t * t), 0.5, df / 2), t)
    tail = 0.5 * incomplete_beta(df / (df + t * t), df / 2, 0.5)
    return 1 - tail if t > 0 else tail


def f_tail(ratio: float, over: float, under: float) -> float:
    """Return the chance that the ratio of two estimates of the same variance, with these degrees of freedom, is larger than this."""
    return incomplete_beta(under / (under + over * ratio), under / 2, over / 2)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 400):
        for step in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + step * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + step / c
            c = c if abs(c) > tiny else tiny
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


@functools.lru_cache(maxsize=4096)
def order_ranks(n: int, quantile: float = 0.5, confidence: float = 0.95) -> tuple[int, int] | None:
    """Ranks (from 0) of the order statistics that enclose a quantile with the given confidence, or None if n is too small.

    Exact binomial: the count of values below the quantile is Binomial(n, quantile). Its mass beyond nine standard
    deviations is negligible at any confidence in use, so the sum begins there.
    """
    tail = (1 - confidence) / 2
    first = max(0, math.floor(n * quantile - 9 * math.sqrt(n * quantile * (1 - quantile))))
    log_mass = math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
    mass = math.exp(log_mass + first * math.log(quantile) + (n - first) * math.log1p(-quantile))
    odds = quantile / (1 - quantile)
    cumulative, lower, upper = 0.0, -1, n
    for k in range(first, n + 1):
        cumulative += mass
        mass *= (n - k) / (k + 1) * odds
        if cumulative <= tail:
            lower = k
        if cumulative >= 1 - tail:
            upper = k
            break
    return None if lower < 0 or upper >= n else (lower, upper)


def median_interval(values: Floats, confidence: float = 0.95) -> Interval:
    """The median with an interval that stays valid if neighbouring values are correlated.

    The order-statistics interval assumes independence, which blocks in a row do not have; the spread of the medians of
    contiguous batches includes slow drift. The wider of the two is reported on each side. Too few values, fewer than six for 95 %,
    have no interval: their range would contain the median far less often than the confidence says.
    """
    n = len(values)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    ranks = order_ranks(n, 0.5, confidence)
    if ranks is None:
        return Interval(statistics.median(values.tolist()), -math.inf, math.inf, n)
    centre = float(np.median(values))
    ordered = np.sort(values)
    low, high = float(ordered[ranks[0]]), float(ordered[ranks[1]])
    batches = min(16, max(5, n // 20))
    if n >= 4 * batches:
        medians = [float(np.median(batch)) for batch in np.array_split(values, batches)]
        half = t_quantile((1 + confidence) / 2, batches - 1) * float(np.std(medians, ddof=1)) / math.sqrt(batches)
        low, high = min(low, centre - half), max(high, centre + half)
    return Interval(centre, low, high, n)


def net_interval(values: Floats, doubt: float) -> Interval:
    """The median of times from which an overhead was subtracted that is known only to within `doubt`.

    If the rest may be zero, the interval starts at zero and ends at the largest possible time: no time is negative, and
    one that may be zero cannot be a divisor. If every value is larger than the doubt, an interval that reaches below zero
    comes from values that drift: the time is far from zero, but not known well.
    """
    found = median_interval(values)
    low = found.centre - math.hypot(found.centre - found.low, doubt)
    high = found.centre + math.hypot(found.high - found.centre, doubt)
    if not doubt or (found.centre > doubt and (low > 0 or not math.isfinite(low))):
        return Interval(found.centre, low, high, found.n)
    least = float(values.min())
    if least > doubt:
        return Interval(found.centre, max(low, least - doubt), high, found.n)
    reach = max(high - found.centre, doubt) if math.isfinite(high) else float(np.abs(values - found.centre).max()) + doubt
    return Interval(0.0, 0.0, abs(found.centre) + reach, found.n)


def time_figure(interval: Interval) -> Figure:
    """A time for a record: without an interval if there were too few values, and never below zero."""
    low, high = (None if end is None else max(0.0, end) for end in interval.ends)
    return Figure(max(0.0, interval.centre), "s", "lower", low, high, interval.n)


def quantile_interval(values: Floats, quantile: float, confidence: float = 0.95) -> Interval | None:
    """A tail quantile with its exact interval; None if n is too small (fewer than ten values beyond it)."""
    n = len(values)
    if round(n * min(quantile, 1 - quantile), 6) < 10:
        return None
    ranks = order_ranks(n, quantile, confidence)
    if ranks is None:
        return None
    ordered = np.sort(values)
    return Interval(float(np.quantile(ordered, quantile)), float(ordered[ranks[0]]), float(ordered[ranks[1]]), n)


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Mean with a t interval: for values that are independent by design, such as one centre per rebuild."""
    n = len(values)
    centre = math.fsum(values) / n if n else math.nan
    if n < 2:
        return Interval(centre, -math.inf, math.inf, n)
    variance = math.fsum((value - centre) ** 2 for value in values) / (n - 1)
    half = t_quantile((1 + confidence) / 2, n - 1) * math.sqrt(variance / n)
    return Interval(centre, centre - half, centre + half, n)


def trend(values: Sequence[float]) -> float:
    """Mann-Kendall score: how many standard deviations the series is from having no trend; negative when it falls."""
    series = np.asarray(values, float)
    n = len(series)
    if n < 3:
        return 0.0
    score = float(sum(np.sign(series[k + 1 :] - series[k]).sum() for k in range(n - 1)))
    _, ties = np.unique(series, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return 0.0 if variance <= 0 else (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0


def noise_grade(values: Floats, discarded: float) -> str:
    """A letter for how quiet the machine was: by the relative interquartile spread and the share of discarded blocks."""
    if len(values) < 4:
        return "?"
    low, centre, high = (float(v) for v in np.quantile(values, (0.25, 0.5, 0.75)))
    spread = math.inf if centre <= 0 else (high - low) / centre
    for grade, limit, most in (("A", 0.01, 0.02), ("B", 0.03, 0.10), ("C", 0.10, 0.30)):
        if spread <= limit and discarded <= most:
            return grade
    return "D"
