"""Pair and Delta: two arms weighed together, and what that says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from steelyard.model.record import SCHEMA, Series

Verdict = Literal["slower", "faster", "same", "unclear", "missing", "failed", "incomparable"]


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: which case, in which environment, from which source."""

    id: str
    environment: str = ""
    source: str = ""


@dataclass(frozen=True)
class Pair:
    """Two arms measured interleaved; `ratio` is head time over base time, with its interval over rebuilds."""

    base: Arm
    head: Arm
    ratio: float
    low: float
    high: float
    confidence: float
    rebuilds: int
    quads: int
    coin_seed: int
    calls: tuple[int, int]
    centres: list[float] = field(default_factory=list)
    discarded: dict[str, float] = field(default_factory=dict)
    schedule: str = "quads"
    samples: list[Series] = field(default_factory=list)
    schema: int = SCHEMA


@dataclass(frozen=True)
class Delta:
    """What changed from base to head; direction and materiality are separate questions."""

    base: str
    head: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    margin: float
    verdict: Verdict
    paired: bool
    reason: str = ""

    @property
    def direction(self) -> int:
        """+1 when the interval lies above one, -1 below, 0 when it holds one."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 1 else -1 if self.high < 1 else 0

    @property
    def material(self) -> bool:
        """True when the whole interval lies beyond the margin."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1 + self.margin or self.high < 1 / (1 + self.margin)


def weigh(pair: Pair, margin: float = 0.02) -> Delta:
    """Turn a pair's interval into a verdict; the margin decides `same`, the interval decides direction."""
    low, high = pair.low, pair.high
    inside = low >= 1 / (1 + margin) and high <= 1 + margin
    verdict: Verdict = "same" if inside else "slower" if low > 1 else "faster" if high < 1 else "unclear"
    return Delta(pair.base.id, pair.head.id, "time", pair.ratio, low, high, margin, verdict, paired=True)
