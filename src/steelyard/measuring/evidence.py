"""How sure a difference is: an interval over rebuilds, a randomisation test, and evidence that stays valid however often one looks.

All use one row per rebuild: the distance of each arm from the mean of the other arms, the head first; a row adds up to
zero. Under "no difference" any arm of a rebuild could have been the head, because the order in which arms were built
and called was drawn. The randomisation test and the e-process assume nothing else: neither normal nor symmetric noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.measuring.stats import Interval, t_cdf, t_quantile
from steelyard.model.pair import ALPHA

DRAWS = 8192
STAKES = ((0.98, 0.5), (0.6, 0.3), (0.25, 0.2))
FAIR = 0.7
GRID = 81
REFINEMENTS = 2

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Spread:
    """Noise between rebuilds that is known from other data: a standard deviation and its degrees of freedom."""

    sd: float
    freedom: float


def shifted(rows: Floats, shift: Any) -> Floats:
    """Return the rows as they would be if the head were faster by `shift`."""
    arms = rows.shape[-1]
    weights = np.asarray([1.0, *[-1.0 / (arms - 1)] * (arms - 1)])
    moved: Floats = rows - np.asarray(shift)[..., None, None] * weights
    return moved


def pooled_spread(values: Floats, others: Sequence[Spread]) -> Spread:
    """Return the values' own SD, or the SD pooled with other data if that is wider: other noise may only widen an interval."""
    freedom = len(values) - 1.0
    own = float(values.var(ddof=1))
    total = freedom + sum(other.freedom for other in others)
    pooled = (freedom * own + sum(other.freedom * other.sd**2 for other in others)) / total
    return Spread(math.sqrt(pooled), total) if pooled > own else Spread(math.sqrt(own), freedom)


def t_interval(values: Floats, others: Sequence[Spread] = (), alpha: float = ALPHA / 2) -> Interval:
    """Return the mean with its interval; the spread is pooled with other data on this machine's noise."""
    n = len(values)
    centre = float(values.mean()) if n else math.nan
    if n < 2:
        return Interval(centre, -math.inf, math.inf, n)
    spread = pooled_spread(values, others)
    half = t_quantile(1 - alpha / 2, spread.freedom) * spread.sd / math.sqrt(n)
    return Interval(centre, centre - half, centre + half, n)


def t_p_value(values: Floats, others: Sequence[Spread] = ()) -> float:
    """Return the two-sided chance of a mean this far from zero, by the same model as the interval."""
    if len(values) < 2:
        return 1.0
    spread = pooled_spread(values, others)
    if spread.sd == 0:
        return 1.0 if values.mean() == 0 else 0.0
    return 2 * t_cdf(-abs(float(values.mean())) / (spread.sd / math.sqrt(len(values))), spread.freedom)


@functools.lru_cache(maxsize=8)
def _draws(n: int, arms: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return which arm of each rebuild is taken as the head, per draw: all choices if they are few, else a fixed random sample."""
    if arms**n <= DRAWS:
        return (np.arange(arms**n)[:, None] // arms ** np.arange(n)) % arms
    drawn = np.random.default_rng([n, arms]).integers(0, arms, (DRAWS, n))
    drawn[0] = 0
    return drawn


def swap_p_value(rows: Floats) -> float:
    """Return the two-sided chance of a mean this far from zero when the head of each rebuild is drawn among its arms."""
    seen = abs(float(rows[:, 0].sum()))
    sums = rows[np.arange(len(rows)), _draws(*rows.shape)].sum(axis=1)
    return float(np.mean(np.abs(sums) >= seen * (1 - 1e-9)))


def swap_interval(rows: Floats, alpha: float = ALPHA / 2) -> Interval | None:
    """Return the interval of shifts that the randomisation test does not exclude; None if there are too few rebuilds to exclude any."""
    n, centre = len(rows), float(rows[:, 0].mean())
    if rows.shape[1] ** n * alpha < 2:
        return None
    draws = _draws(*rows.shape)
    sums = rows[np.arange(n), draws].sum(axis=1)
    arms = rows.shape[1]
    weights = np.where(draws == 0, 1.0, -1.0 / (arms - 1)).sum(axis=1)
    ends = []
    for side in (-1, 1):
        inside, outside = 0.0, 4 * max(float(np.abs(rows).max()), 1e-15)
        for _ in range(24):
            middle = (inside + outside) / 2
            shift = centre + side * middle
            chance = float(np.mean(np.abs(sums - shift * weights) >= abs(n * (centre - shift)) * (1 - 1e-9)))
            inside, outside = (middle, outside) if chance > alpha else (inside, middle)
        ends.append(centre + side * outside)
    return Interval(centre, ends[0], ends[1], n)


class Wager:
    """Wealth of a gambler who bets, rebuild by rebuild, on which arm is the head; for several hypothetical shifts at once.

    The stake depends on how much the arms differ, never on which is which, so without a difference every bet is fair, and
    wealth above 1/alpha has a chance of at most alpha, however often one looks. The usual size of a difference is learned from
    earlier rebuilds, and again whenever their number has grown by an eighth.
    """

    def __init__(self, shifts: Sequence[float] | Floats = (0.0,)) -> None:
        self.shifts = np.asarray(shifts, float)
        self._sizes: list[Floats] = []
        self._usual = np.zeros(len(self.shifts))
        self._due = 1
        self._logs = np.zeros((2 * len(STAKES), len(self.shifts)))
        self.highest = np.ones(len(self.shifts))

    def add(self, row: Floats) -> None:
        """Bet on one more rebuild."""
        moved = shifted(row[None, :], self.shifts)[:, 0, :]
        size = np.abs(moved).max(axis=1)
        weight = np.minimum(1.0, size / np.maximum(FAIR * self._usual, 1e-300))
        self._sizes.append(size)
        if len(self._sizes) == self._due:
            self._usual = np.median(self._sizes, axis=0)
            self._due += 1 + self._due // 8
        bet = weight * np.divide(moved[:, 0], size, out=np.zeros_like(size), where=size > 0)
        self._logs += np.log1p(np.stack([side * stake * bet for stake, _ in STAKES for side in (1.0, -1.0)]))
        shares = np.repeat([share / 2 for _, share in STAKES], 2)
        self.highest = np.maximum(self.highest, shares @ np.exp(np.minimum(self._logs, 700.0)))


def strongest(rows: Floats, shifts: Sequence[float] | Floats = (0.0,)) -> Floats:
    """Return the highest wealth against each shift that any look so far could have seen."""
    wager = Wager(shifts)
    for row in rows:
        wager.add(row)
    return wager.highest


def sure_interval(rows: Floats, alpha: float = ALPHA / 2) -> Interval:
    """Return the interval of shifts that the e-process never excluded; it is valid however often one looked.

    The median is part of it even if the difference changed over time and early evidence excludes it. If every shift was
    excluded, the difference was never the same for long, and the interval is infinite.
    """
    n = len(rows)
    middle = float(np.median(rows[:, 0])) if n else math.nan
    nothing = Interval(middle, -math.inf, math.inf, n)
    if n < 8:
        return nothing
    reach = max(8 * float(np.abs(rows - np.median(rows, axis=0)).max()), abs(middle), 1e-12)
    shifts = middle + reach * np.linspace(-1.0, 1.0, GRID) ** 3
    kept = np.flatnonzero(strongest(rows, shifts) < 1 / alpha)
    if len(kept) == 0:
        return nothing
    low = -math.inf if kept[0] == 0 else _edge(rows, shifts[kept[0] - 1], shifts[kept[0]], alpha)
    high = math.inf if kept[-1] == GRID - 1 else _edge(rows, shifts[kept[-1] + 1], shifts[kept[-1]], alpha)
    return Interval(middle, min(low, middle), max(high, middle), n)


def _edge(rows: Floats, excluded: float, kept: float, alpha: float) -> float:
    """Return the excluded shift nearest to a kept one, on grids that are refined between the two."""
    for _ in range(REFINEMENTS):
        shifts = np.linspace(excluded, kept, GRID)
        last = int(np.flatnonzero(strongest(rows, shifts) < 1 / alpha)[0])
        excluded, kept = float(shifts[last - 1]), float(shifts[last])
    return excluded
