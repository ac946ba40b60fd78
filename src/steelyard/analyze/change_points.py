"""Where a series changed its level, by a permutation test, which is exact for every kind of noise.

As in E-divisive, a segment is cut where its parts differ most, the cut counts if hardly any shuffled order of the same values gives
one as clear, and the parts are searched again. Two things are different. A stretch in the middle is compared with the rest as well,
because a slowdown that was fixed a few runs later makes no single cut clear enough. And distances are those of bounded scores, which
limits the weight of outliers: the search is quadratic, and rare slow runs do no harm.

The result for a segment depends only on its values and is cached. After a new point at the end only the segments that reach the end
are searched again, with the same result as a search from scratch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from steelyard.measuring.stats import Floats

ALPHA = 0.01
SHUFFLES = 499
BATCHES = (20, 100, SHUFFLES)
SHORTEST = 3
FEWEST = 10
BOUND = 4.0
ROUNDS = 8
SEED = 7
_TIE = 1e-9

Orders = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class Split:
    """A new level from `index` on; `p` is the probability of a split this clear if the values around it were in random order."""

    index: int
    p: float


@dataclass(frozen=True)
class Stretch:
    """The part of a segment that differs most from the rest, from `start` up to `stop`."""

    start: int
    stop: int
    p: float


@dataclass
class Track:
    """A series, which may grow at its end; results for a segment are cached."""

    values: list[float] = field(default_factory=list)
    _known: dict[tuple[int, int, bool], Stretch | None] = field(default_factory=dict, repr=False)

    def splits(self) -> list[Split]:
        """Every change of level, in order."""
        cuts = self._cut()
        for _ in range(ROUNDS):
            cuts, before = self._moved(self._without_unclear(cuts)), cuts
            if cuts == before:
                break
        cuts = self._without_unclear(cuts)
        return [Split(cut, step.p) for cut, step in zip(cuts, self._steps(cuts), strict=True) if step]

    def _cut(self) -> list[int]:
        """Cut until no segment has a clear stretch in it."""
        cuts: set[int] = set()
        waiting = [(0, len(self.values))]
        while waiting:
            start, stop = waiting.pop()
            found = self._clear(start, stop, inner=False) or self._clear(start, stop, inner=True)
            if found:
                edges = sorted({start, found.start, found.stop, stop})
                cuts.update(edges[1:-1])
                waiting += pairwise(edges)
        return sorted(cuts)

    def _without_unclear(self, cuts: list[int]) -> list[int]:
        """Drop the weakest cut until every cut is clear between its two neighbours, since one edge of a stretch may be there by chance."""
        while cuts:
            chances = [step.p if step else 1.0 for step in self._steps(cuts)]
            weakest = max(range(len(cuts)), key=chances.__getitem__)
            if chances[weakest] <= ALPHA:
                break
            cuts = cuts[:weakest] + cuts[weakest + 1 :]
        return cuts

    def _moved(self, cuts: list[int]) -> list[int]:
        """Move each cut to the best place between its neighbours, which were not known yet when it was found."""
        edges = [0, *cuts, len(self.values)]
        for place in range(1, len(edges) - 1):
            step = self._clearest(edges[place - 1], edges[place + 1], inner=False)
            edges[place] = step.stop if step else edges[place]
        return edges[1:-1]

    def _steps(self, cuts: list[int]) -> list[Stretch | None]:
        edges = [0, *cuts, len(self.values)]
        return [self._clearest(before, after, inner=False) for before, after in zip(edges, edges[2:], strict=False)]

    def _clear(self, start: int, stop: int, *, inner: bool) -> Stretch | None:
        found = self._clearest(start, stop, inner=inner)
        return found if found and found.p <= ALPHA else None

    def _clearest(self, start: int, stop: int, *, inner: bool) -> Stretch | None:
        if (start, stop, inner) not in self._known:
            found = clearest(np.asarray(self.values[start:stop], float), inner=inner)
            self._known[start, stop, inner] = found and Stretch(start + found.start, start + found.stop, found.p)
        return self._known[start, stop, inner]


def change_points(values: Sequence[float]) -> list[Split]:
    """The splits of a finished series."""
    return Track(list(values)).splits()


def clearest(values: Floats, *, inner: bool) -> Stretch | None:
    """The stretch that differs most from the rest, with its p-value; an `inner` one may lie anywhere, otherwise it begins at the start.

    None for fewer than FEWEST values, which have too few orders for a small p-value.
    Shuffling ends early once the stretch cannot be clear any more; the p-value is then estimated from the shuffles so far.
    """
    size = len(values)
    if size < FEWEST:
        return None
    scores = bounded(values)
    places = [(start, heights[:, 0]) for start, heights in _heights(scores, np.arange(size)[:, None], inner)]
    start, heights = max(places, key=lambda place: float(place[1].max()))
    bar = float(heights.max()) * (1 - _TIE)
    if not bar > 0:
        return None
    stretch = Stretch(start, start + SHORTEST + int(np.argmax(heights)), 1.0)
    orders, reached, done = shuffles(size), 0, 0
    for end in BATCHES:
        tops = [heights.max(axis=0) for _, heights in _heights(scores, orders[:, done:end], inner)]
        reached, done = reached + int((np.max(tops, axis=0) >= bar).sum()), end
        if (1 + reached) / (SHUFFLES + 1) > ALPHA:
            return replace(stretch, p=reached / done)
    return replace(stretch, p=(1 + reached) / (SHUFFLES + 1))


def bounded(values: Floats) -> Floats:
    """Distances from the median in robust standard deviations, clipped at BOUND, then centred; the order of values does not matter."""
    away = values - np.median(values)
    scale = 1.4826 * float(np.median(np.abs(away))) or float(np.mean(np.abs(away))) or 1.0
    scores = np.clip(away / scale, -BOUND, BOUND)
    centred: Floats = scores - scores.mean()
    return centred


@functools.lru_cache(maxsize=32)
def shuffles(size: int) -> Orders:
    """The random orders that a segment is compared with, one per column; the same for one length, so that results are reproducible."""
    rows = np.tile(np.arange(size), (SHUFFLES, 1))
    return np.ascontiguousarray(np.random.default_rng((SEED, size)).permuted(rows, axis=1).T)


def _heights(scores: Floats, orders: Orders, inner: bool) -> Iterator[tuple[int, Floats]]:
    """For each start, how far every stretch (row) differs from the rest in every order (column), in units of its own spread."""
    size = len(scores)
    sums = np.zeros((size + 1, orders.shape[1]))
    np.cumsum(scores[orders], axis=0, out=sums[1:])
    length = np.arange(size + 1.0)[:, None]
    weights = 1 / np.sqrt(np.clip(length * (size - length), 1, None) / size)
    for start in (0, *range(SHORTEST, size - 2 * SHORTEST + 1)) if inner else (0,):
        last = size - SHORTEST + 1
        yield start, np.abs(sums[start + SHORTEST : last] - sums[start]) * weights[SHORTEST : last - start]
