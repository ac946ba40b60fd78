"""When a comparison has settled its margin, how long it may continue until then, and what looking more than once costs.

A spent budget does not answer the question: whether the difference is inside the margin or beyond it. If the interval does not
answer it either, measuring continues, with looks at moments that are fixed beforehand. Each look may be wrong, so
each uses a share of the error that is allowed in total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from steelyard.measuring.stats import Interval, t_quantile
from steelyard.model.pair import ALPHA, MARGIN

SETTLED, BUDGET, TIMEOUT = "settled", "budget", "timeout"
BROKEN_OFF = "it was not settled within its budget, and could not continue: {}"
FIRST_SHARE = 0.75
PARTS = (0.25, 0.5, 1.0)
HOPE = 2.0
PATIENCE = 0.8
FARTHEST = 1000.0


def settled(interval: Interval, margin: float) -> bool:
    """Whether an interval of a log-ratio is inside the margin or wholly beyond it; otherwise nothing is decided."""
    low, high, edge = interval.low, interval.high, math.log1p(margin)
    return (low >= -edge and high <= edge) or low > edge or high < -edge


@dataclass(frozen=True)
class Looks:
    """When a comparison is looked at, and how much of the fixed interval's error each look may spend.

    `extension` is how many times the first effort may be added to it. Most of the error is spent at the first look, because
    most comparisons need no other; without an extension, all of it.
    """

    extension: float

    @property
    def at(self) -> tuple[float, ...]:
        """The moments, in multiples of the first effort."""
        return (1.0, *(1 + part * self.extension for part in PARTS)) if self.extension > 0 else (1.0,)

    def share(self, look: int) -> float:
        """The share of the error for one look, counted from 0; all shares add up to at most 1."""
        if len(self.at) == 1:
            return 1.0
        return FIRST_SHARE if look == 0 else (1 - FIRST_SHARE) / len(PARTS)

    def progress(self, look: int, done: float) -> tuple[str, float]:
        """The progress message before a look, when `done` times the first effort is spent, and the share that is done at most."""
        if look == 0:
            return "weighing", min(1.0, done)
        return "still measuring, not settled yet", min(1.0, (done - 1) / (self.at[-1] - 1))


def goes_on(interval: Interval, margin: float, spent: float, left: float) -> bool:
    """Whether more effort is spent on a comparison that has spent `spent` and has `left` seconds.

    If the direction is certain and the size is not, always, because a gate needs the size. If nothing is certain, only if the
    rest may settle it.
    """
    if left <= 0 or settled(interval, margin):
        return False
    if interval.low > 0 or interval.high < 0:
        return True
    needed = needed_seconds(interval, spent, margin)
    return needed is not None and needed <= HOPE * left


def needed_seconds(interval: Interval, spent: float, margin: float = MARGIN) -> float | None:
    """How many more seconds would bring the interval of a log-ratio inside the margin or out of it; None if none, or too many."""
    low, high, n = interval.low, interval.high, interval.n
    if not math.isfinite(high - low) or n < 3 or settled(interval, margin):
        return None
    asked = abs(abs(interval.centre) - math.log1p(margin))
    more = t_quantile(1 - ALPHA / 4, max(1.0, n - 1.0)) / t_quantile(1 - ALPHA / 4, 60.0)
    factor = ((high - low) / 2 / max(asked, 1e-12) / more) ** 2
    return max(spent * 0.25, spent * (factor - 1)) if factor < FARTHEST else None


def ending(reason: str, look: int, *, decided: bool) -> str:
    """Why a comparison ended at a look: settled in its extension, or else what it ran out of."""
    return SETTLED if decided and look else reason
