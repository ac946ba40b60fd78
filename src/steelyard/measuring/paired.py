"""The result of interleaved blocks of several arms: one log-ratio per rebuild, its noise floor, and a finding with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.measuring.evidence import Spread, strongest, sure_interval, swap_interval, swap_p_value, t_interval, t_p_value
from steelyard.measuring.stats import Interval, net_interval, time_figure
from steelyard.model.pair import ALPHA, MOST_DISCARDED
from steelyard.model.record import Figure

FEWEST_PAIRS = 2
FEWEST_CENTRES = 6
CLEAN_SHARE = 0.6
BUSY, FEWEST_BUSY = 0.95, 8
LEAST_NET = 0.1
PLACEBO_FACTOR = math.sqrt(0.75)
STAYING = 0.05
"""What the place in memory can cost: lists of strings and of small tensors were seen to differ by this much."""
DWARFING = math.log(1.1)
"""A difference of more than this, with and without the disturbed blocks, cannot come from the disturbance."""
BEYOND_DOUBT = math.log(1.5)
"""The same if every block was disturbed and no other clock can confirm it, as on a device with its clock forced down throughout."""
WALL, CPU = "wall", "thread CPU"

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Ints = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Rounds:
    """Raw blocks; a round calls every arm once in drawn order and once in the reverse of it. Columns are in order of time.

    Arm 0 is the base. With two arms a round is a quad, ABBA or BAAB. `group` counts rebuilds, or pairs of processes.
    `placebo` is the arm that is the base built again.
    """

    seconds: Floats
    cpu: Floats
    disturbed: Bools
    arm: Ints
    group: Ints
    calls: tuple[int, ...]
    placebo: int | None = None
    overhead: float = 0.0
    seed: int = 0
    doubt: float = 0.0

    @property
    def groups(self) -> list[int]:
        return [int(number) for number in np.unique(self.group)]

    def only(self, head: int) -> Rounds:
        """The blocks of one head, of the base and of the placebo; arms keep their numbers."""
        kept = np.isin(self.arm, [0, head, -1 if self.placebo is None else self.placebo])
        shape = (len(self.arm), -1)
        fewer = {name: getattr(self, name)[kept].reshape(shape) for name in ("seconds", "cpu", "disturbed", "arm")}
        return replace(self, **fewer)

    def clock(self, arms: Sequence[int]) -> str:
        """Wall time of the undisturbed blocks; if most pairs were disturbed, the thread's own CPU time of all blocks.

        CPU time replaces wall time only if an undisturbed call of either arm is busy all the time: work that one of
        them hands to other threads would not be counted.
        """
        mine = np.isin(self.arm, arms)
        clean = mine & ~self.disturbed
        if not len(self.seconds) or (~self.disturbed[mine]).mean() >= math.sqrt(CLEAN_SHARE) or not np.any(self.cpu > 0):
            return WALL
        for number in arms:
            own = clean & (self.arm == number)
            if own.sum() < FEWEST_BUSY / 2 or not BUSY < np.median(self.cpu[own] / np.maximum(self.seconds[own], 1e-12)) < 2 - BUSY:
                return WALL
        return CPU

    def ratios(self, base: int, head: int, clock: str) -> tuple[Floats, Bools]:
        """Two log-ratios head/base per round, one from each half of it, with the mask of undisturbed ones.

        The same overhead is subtracted from all arms: two figures for it would differ by their noise, and that would look
        like a difference between the arms.
        """
        taken = self.seconds if clock == WALL else self.cpu
        rows, half = np.arange(len(taken)), self.arm.shape[1] // 2
        times, marks = [], []
        for number in (base, head):
            first = np.argmax(self.arm[:, :half] == number, axis=1)
            second = self.arm.shape[1] - 1 - first
            raw = np.maximum(np.stack([taken[rows, first], taken[rows, second]], axis=1) / self.calls[number], 1e-12)
            times.append(np.log(np.maximum(raw - self.overhead, LEAST_NET * raw)))
            marks.append(np.stack([self.disturbed[rows, first], self.disturbed[rows, second]], axis=1))
        clean = ~(marks[0] | marks[1]) if clock == WALL else np.ones_like(marks[0])
        return times[1] - times[0], clean

    def centres(self, base: int, head: int, clock: str) -> dict[int, float]:
        """The median log-ratio of each group with enough undisturbed pairs; other groups are left out."""
        ratios, clean = self.ratios(base, head, clock)
        found = {}
        for number in self.groups:
            mine = self.group == number
            kept = ratios[mine][clean[mine]]
            if len(kept) >= FEWEST_PAIRS or (len(kept) and mine.sum() == 1):
                found[number] = float(np.median(kept))
        return found

    def rows(self, head: int, clock: str) -> tuple[Floats, Floats]:
        """Per group the distance of each arm from the mean of the others, the head first; and of the base built again from the base."""
        direct = self.centres(0, head, clock)
        if self.placebo is None:
            values = np.asarray(list(direct.values()))
            return np.stack([values, -values], axis=1), np.empty(0)
        other, floor = self.centres(self.placebo, head, clock), self.centres(0, self.placebo, clock)
        whole = [number for number in direct if number in other and number in floor]
        to_base, to_placebo, between = (np.asarray([found[number] for number in whole]) for found in (direct, other, floor))
        rows = np.stack([to_base + to_placebo, -to_base - between, between - to_placebo], axis=1) / 2
        return rows, between

    def time(self, number: int, clock: str) -> Figure:
        """What a call of one arm takes in these blocks: the median over groups of their medians, less the overhead with its doubt.

        Fewer than six groups give no interval; a time like that of an empty call has only an upper bound, as in a record.
        """
        taken = (self.seconds if clock == WALL else self.cpu) / self.calls[number]
        mine = self.arm == number
        kept = mine & ~self.disturbed if clock == WALL else mine
        medians = []
        for group in self.groups:
            rows = self.group == group
            medians.append(float(np.median(taken[rows][kept[rows] if kept[rows].any() else mine[rows]])))
        return time_figure(net_interval(np.asarray(medians) - self.overhead, self.doubt))

    def doubted(self, interval: Interval, head: int) -> Interval:
        """The interval widened by the uncertainty of the overhead: it was subtracted from both arms, and matters more the shorter they are.

        An arm that cannot be distinguished from an empty call may be shorter than any other by any factor.
        """
        if not self.doubt:
            return interval
        raw = [float(np.median(self.seconds[self.arm == number])) / self.calls[number] for number in (0, head)]
        base, own = (value - self.overhead for value in raw)
        if min(base, own) <= self.doubt:
            low = -math.inf if own <= self.doubt else min(interval.low, math.log((own - self.doubt) / (max(base, 0.0) + self.doubt)))
            high = math.inf if base <= self.doubt else max(interval.high, math.log((max(own, 0.0) + self.doubt) / (base - self.doubt)))
            return replace(interval, low=low, high=high)
        shifts = [math.log((own - off) / (base - off)) - math.log(own / base) for off in (self.doubt, -self.doubt)]
        return replace(interval, low=interval.low + min(0.0, *shifts), high=interval.high + max(0.0, *shifts))

    def discarded(self, arms: Iterable[int]) -> list[float]:
        """Share of each arm's blocks that were disturbed."""
        return [float(self.disturbed[self.arm == number].mean()) if np.any(self.arm == number) else 0.0 for number in arms]


@dataclass(frozen=True)
class Finding:
    """The log-ratio of two arms with its interval and the evidence."""

    interval: Interval
    centres: Floats
    p: float
    evidence: float
    clock: str
    discarded: tuple[float, float]
    floor: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> Interval:
        """The interval as a ratio of times."""
        low, high = (math.exp(min(50.0, max(-50.0, end))) for end in (self.interval.low, self.interval.high))
        return Interval(math.exp(self.interval.centre), low, high, self.interval.n)


def find(rounds: Rounds, head: int = 1, *, peeked: bool = False, share: float = 1.0) -> Finding:
    """Compare one head with the base; `peeked` if the evidence decided when to stop, for which the interval must allow.

    `share` is the part of the fixed interval's error that this look may spend if there are several.
    """
    clock, notes, mixed = rounds.clock([0, head]), [], False
    rows, between = rounds.rows(head, clock)
    if len(rows) < min(FEWEST_CENTRES, len(rounds.groups)):
        rows, between = _all_blocks(rounds).rows(head, WALL)
        clock, mixed = WALL, True
        notes.append("too few undisturbed blocks: all of them were used")
    floor = float(between.std(ddof=1)) if len(between) > 2 else None
    others = [] if floor is None else [Spread(PLACEBO_FACTOR * floor, len(between) - 1.0)]
    interval, p, strength = bounds(rows, others, peeked=peeked, share=share)
    interval = rounds.doubted(interval, head)
    lost = rounds.discarded((0, head))
    if clock == CPU:
        notes.append(f"{max(lost):.0%} of blocks were disturbed: the thread's CPU time of all of them was used")
        lost = [0.0, 0.0]
    elif max(lost) > MOST_DISCARDED and (not mixed or np.any(rounds.cpu > 0)):
        other = CPU if mixed else WALL
        every, apart = _all_blocks(rounds).rows(head, other)
        spread = [Spread(PLACEBO_FACTOR * float(apart.std(ddof=1)), len(apart) - 1.0)] if len(apart) > 2 else []
        hull = _hull(interval, rounds.doubted(bounds(every, spread, peeked=peeked, share=share)[0], head))
        if hull.low > DWARFING or hull.high < -DWARFING:
            how = "by wall time and by the thread's CPU time" if mixed else "with and without them"
            notes.append(f"{max(lost):.0%} of blocks were disturbed; the difference stays {how}, and the interval covers both")
            interval, lost = hull, [0.0, 0.0]
    elif min(lost) > MOST_DISCARDED and (interval.low > BEYOND_DOUBT or interval.high < -BEYOND_DOUBT):
        notes.append(f"{max(lost):.0%} of blocks were disturbed, in both arms; so large a difference does not come from that")
        lost = [0.0, 0.0]
    return Finding(interval, rows[:, 0], p, strength, clock, (lost[0], lost[1]), floor, tuple(notes))


def _all_blocks(rounds: Rounds) -> Rounds:
    """The rounds with all blocks marked as undisturbed."""
    return replace(rounds, disturbed=np.zeros_like(rounds.disturbed))


def _hull(one: Interval, other: Interval) -> Interval:
    """The smallest interval that covers both."""
    return replace(one, low=min(one.low, other.low), high=max(one.high, other.high))


def bounds(rows: Floats, others: Sequence[Spread] = (), *, peeked: bool = False, share: float = 1.0) -> tuple[Interval, float, float]:
    """The interval over rebuilds, its p-value and the evidence: half of the error for the e-process, half for all fixed looks."""
    strength = float(strongest(rows)[0])
    sure = sure_interval(rows, ALPHA / 2)
    if peeked:
        return sure, min(1.0, 1 / strength), strength
    fixed, chance = fixed_interval(rows, others, share * ALPHA / 2)
    return _both(fixed, sure), min(1.0, 2 * min(1 / strength, chance / share)), strength


def unmoved(found: Finding, kinds: Sequence[str]) -> Finding:
    """The result for arms with objects that could not be moved: their place in memory may explain the difference."""
    interval = found.interval
    wider = replace(interval, low=interval.low - STAYING, high=interval.high + STAYING)
    what = ", ".join(kinds)
    note = f"{what} could not be moved between rebuilds; its place in memory can cost {STAYING:.0%}, so the interval is wider by that"
    return replace(found, interval=wider, notes=(*found.notes, note))


def _both(fixed: Interval, sure: Interval) -> Interval:
    """The overlap of two intervals; each may be wrong in half of the allowed cases."""
    low, high = max(fixed.low, sure.low), min(fixed.high, sure.high)
    if low > high:
        return sure
    return Interval(min(max(fixed.centre, low), high), low, high, fixed.n)


def fixed_interval(rows: Floats, others: Sequence[Spread], alpha: float) -> tuple[Interval, float]:
    """The interval at the end of a budget, with its p-value: Student's, widened if the randomisation test excludes less."""
    interval, p = t_interval(rows[:, 0], others, alpha), t_p_value(rows[:, 0], others)
    swapped = swap_interval(rows, alpha)
    if swapped is None:
        return interval, p
    chance = swap_p_value(rows)
    widened = Interval(interval.centre, min(interval.low, swapped.low), max(interval.high, swapped.high), interval.n)
    return widened, max(p, chance) if chance > alpha else p
