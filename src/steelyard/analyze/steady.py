"""Removes changes of level that are only chance: several runs of a noisy period that are on one side.

The search for changes assumes that all runs are equally noisy. In a period of nights that scatter four times as much, three in a row on
the same side are common, and would count as a new level. So each change is tested again with every run in units of the noise
around it, and kept only if it is still clear.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steelyard.analyze.change_points import ALPHA, Split, clearest
from steelyard.measuring.stats import Floats

REACH = 3
RESTLESS = 2.0
NEAR = 3


def steady(values: Sequence[float], splits: Sequence[Split]) -> list[Split]:
    """The splits that are clear relative to the noise around them; all of them if the noise is uniform."""
    series = np.asarray(values, np.float64)
    noise = local_noise(series)
    left = list(splits)
    while left and (noise > 1).any():
        edges = [0, *(split.index for split in left), len(series)]
        chances = [_chance(series, noise, *ends) for ends in zip(edges, edges[1:], edges[2:], strict=False)]
        weakest = max(range(len(left)), key=chances.__getitem__)
        if chances[weakest] <= ALPHA:
            break
        del left[weakest]
    return left


def local_noise(series: Floats) -> Floats:
    """How much noisier than usual the runs around each run are, from differences between neighbours; a change of level affects only one.

    A ratio up to RESTLESS may be chance, and counts as 1.
    """
    jumps = np.abs(np.diff(series))
    usual = float(np.median(jumps)) if len(jumps) else 0.0
    if not usual > 0:
        return np.ones(len(series))
    around = np.array([np.median(jumps[max(0, place - REACH) : place + REACH]) for place in range(len(series))])
    ratio: Floats = around / usual
    return np.where(ratio > RESTLESS, ratio, 1.0)


def _chance(series: Floats, noise: Floats, start: int, cut: int, stop: int) -> float:
    """The probability of a split this clear in a random order, in units of the local noise; 1 if the clearest split is elsewhere."""
    part = series[start:stop]
    found = clearest((part - np.median(part)) / noise[start:stop], inner=False)
    return found.p if found and abs(start + found.stop - cut) <= NEAR else 1.0
