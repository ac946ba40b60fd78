"""What a night shows that no single comparison can: a level that changed some nights ago, and between which commits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steelyard.analyze.history import MOST_POINTS, Change, History, find_changes
from steelyard.codec.policy import Policy
from steelyard.model.effects import beyond
from steelyard.model.pair import MARGIN

NEAR = 3
"""A change found before may be dated some nights off once more is known; this near it is the same one."""


@dataclass(frozen=True)
class Since:
    """A change of level in the history of a case; `material` where its whole interval lies beyond the margin, as in the gate."""

    case: str
    change: Change
    material: bool


def appeared(series: Mapping[str, History], run: str, policy: Policy) -> list[Since]:
    """The changes that can be seen with this run and could not without it: slower ones first, the largest first."""
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
