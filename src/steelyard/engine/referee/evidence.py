"""What is found about a candidate: its calls by the judge's clock, the checks of its answers, and findings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard.engine.referee.gains import CLAIMED, excess
from steelyard.model.judging import Trick

CLEARLY = 2.0
"""A block this many times as long as one without calls is clearly longer."""


@dataclass(frozen=True)
class Block:
    """Some calls of one arm in a row, by the judge's clock: seconds of copying inputs in, of the calls, and of showing the outputs.

    The CPU seconds are those of the process with everything below it, during the calls and around them; NaN on a device. Only audited
    blocks are shown.
    """

    pair: int
    round: int
    half: int
    arm: int
    calls: int
    land: float
    took: float
    show: float | None
    cpu: float
    cpu_around: float
    roused: float = 0.0
    """Seconds of the words that were exchanged before the calls, on a device."""
    shown: int = 0
    """How many outputs were shown."""


@dataclass
class Evidence:
    """All that was found about a candidate."""

    tricks: list[Trick] = field(default_factory=list)
    wrong: Mapping[str, Any] | None = None
    checked: list[Mapping[str, Any]] = field(default_factory=list)
    serial: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of one call by itself: of the reference and of the candidate."""
    empty: list[float] = field(default_factory=list)
    """Seconds of a block without calls in the reference's stand."""
    blocks: list[Block] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def tell(self, kind: str, words: str, *, voids: bool = True) -> None:
        """Add a finding, unless there is one of its kind."""
        if all(trick.kind != kind for trick in self.tricks):
            self.tricks.append(Trick(kind, words, voids))

    def of(self, pair: int) -> list[Block]:
        """The blocks of one pair of processes."""
        return [block for block in self.blocks if block.pair == pair]

    def set_aside(self, pair: int) -> None:
        """Forget the blocks of one pair, which is measured again."""
        self.blocks = [block for block in self.blocks if block.pair != pair]

    @property
    def overhead(self) -> float:
        """Seconds that requesting a block costs."""
        return statistics.median(self.empty) if self.empty else 0.0

    def per_call(self, arm: int) -> list[float]:
        """Seconds of one call, for each block of an arm."""
        return [max(block.took - self.overhead, 1e-9) / block.calls for block in self.blocks if block.arm == arm]

    def surely(self, arm: int) -> float:
        """Seconds of one call in the median block; the cost of requesting it is included if the block is not clearly longer than that."""
        took = statistics.median(block.took for block in self.blocks if block.arm == arm)
        if took > CLEARLY * self.overhead:
            return statistics.median(self.per_call(arm))
        return statistics.median(block.took / block.calls for block in self.blocks if block.arm == arm)

    @property
    def gain(self) -> float:
        """Seconds that a call saves according to blocks, less what chance can explain."""
        return excess(self.per_call(1), self.per_call(0))

    @property
    def claim(self) -> float:
        """The gain that calls one by one must confirm: what blocks surely show, or in noise the difference of medians if it is large."""
        base, head = (statistics.median(self.per_call(arm)) for arm in (0, 1))
        return self.gain if self.gain > 0 else base - head if base - head > CLAIMED * base else 0.0
