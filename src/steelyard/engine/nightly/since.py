"""Changes of level some nights ago, with the commits between which they began; a single comparison cannot show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steelyard.analyze.history import MOST_POINTS, Change, History, find_changes
from steelyard.codec.policy import Policy
from steelyard.model.effects import beyond
from steelyard.model.pair import MARGIN

NEAR = 3
"""More nights can shift the date of a change that was already known; two dates at most this many nights apart are the same change."""


@dataclass(frozen=True)
class Since:
    """A change of level in the history of a case; `material` if its whole interval lies beyond the margin, as in the gate."""

    case: str
    change: Change
    material: bool


def appeared(series: Mapping[str, History], run: str, policy: Policy) -> list[Since]:
    """Return the changes that became visible with this run: material ones first, then slower ones, then larger ones."""
    found = [
        Since(history.case, change, beyond(change.low, change.high, policy.margins_of(history.case).get("time", MARGIN)))
        for history in series.values()
        for change in _fresh(history, run)
    ]
    return sorted(found, key=lambda item: (not item.material, item.change.ratio <= 1, -abs(math.log(item.change.ratio))))


def _fresh(history: History, run: str) -> Iterator[Change]:
    if not history.changes or history.points[-1].run != run:
        return
    points = history.points[-MOST_POINTS:-1]
    known = find_changes(points, len(history.points) - 1 - len(points))
    for change in history.changes:
        if not any(abs(old.index - change.index) <= NEAR and (old.ratio > 1) == (change.ratio > 1) for old in known):
            yield change
