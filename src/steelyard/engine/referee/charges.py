"""Findings on work that a candidate does outside of its timed calls, or on more threads than it may use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.gains import SUPPORTED, beyond, excess, saved_alone
from steelyard.model.judging import Trick
from steelyard.model.units import plain

OUTSIDE, LEAST_OUTSIDE = 0.25, 3e-4
"""Work around the calls is reported if it is more than this share of the calls' own time, and more than this many seconds a block."""
LEAST_ROUSING = 1e-4
"""The same for the exchange of words before the calls, which takes all processes about as long."""
FEWEST_SERIAL = 4
COLD = 0.25
"""On a device a gain counts against a candidate only if it is at least this share of the reference's single call."""


def charges(blocks: Sequence[Block], threads: int, device: str) -> list[Trick]:
    """Return findings on CPU work outside of the timed calls, or by more threads than the contract allows, with its amount."""
    if device != "cpu":
        return []
    base, head = _by_arm(blocks)
    least = max(OUTSIDE * _own(head), LEAST_OUTSIDE)
    found = []
    surplus = [[max(0.0, block.cpu - threads * block.took) for block in arm] for arm in (base, head)]
    if (extra := excess(*surplus)) > least:
        allowed = "one thread" if threads == 1 else f"{threads} threads"
        found.append(Trick("hidden", f"{plain(extra, 's')} of CPU a block beyond the {allowed} of the contract"))
    around = [[block.cpu_around for block in arm if block.show is None] for arm in (base, head)]
    if (extra := excess(*around)) > least:
        found.append(Trick("outside", f"{plain(extra, 's')} of CPU a block is spent before the calls, where the reference spends none"))
    return found


def by_time(blocks: Sequence[Block]) -> list[Trick]:
    """Return findings on time outside of the timed calls, by the judge's clock: work that is not on a CPU of the candidate's processes."""
    base, head = _by_arm(blocks)
    least = max(2 * OUTSIDE * _own(head), LEAST_OUTSIDE)
    landing = _median([block.calls for block in head]) * beyond(*([block.land / block.calls for block in arm] for arm in (base, head)))
    looked = [[block for block in arm if block.show is not None and block.shown] for arm in (base, head)]
    showing = _median([block.shown for block in looked[1]]) * beyond(
        *([(block.show or 0.0) / block.shown for block in arm] for arm in looked)
    )
    rousing = beyond(*([block.roused for block in arm] for arm in (base, head)))
    places = (
        (landing, least, "before the calls"), (rousing, LEAST_ROUSING, "right before the calls"),
        (showing, least, "after the calls, when outputs are read"),
    )  # fmt: skip
    return [
        Trick("outside", f"{plain(extra, 's')} a block are spent {words}, beyond what the reference needs there")
        for extra, allowed, words in places
        if extra > allowed
    ]


def amortised(seen: Evidence, device: str) -> list[Trick]:
    """Return a finding if calls one by one do not show the gain of blocks: time saved by doing many calls at once is not speed.

    On a device, that a small gain does not show is no evidence: a single call is mostly the launch after a pause, which takes longer in
    Python than in a framework. The verdict is unclear then.
    """
    gain = seen.gain
    if gain <= 0 or len(seen.serial) < FEWEST_SERIAL:
        return []
    if device != "cpu" and gain < COLD * statistics.median(base for base, _ in seen.serial):
        return []
    _, high = saved_alone(seen.serial)
    if high >= SUPPORTED * gain:
        return []
    words = f"{plain(gain, 's')} a call are saved in blocks of calls, but at most {plain(max(high, 0.0), 's')} in calls one by one"
    return [Trick("amortised", words)]


def _by_arm(blocks: Sequence[Block]) -> tuple[list[Block], list[Block]]:
    return [block for block in blocks if block.arm == 0], [block for block in blocks if block.arm == 1]


def _median(counts: Sequence[int]) -> float:
    return statistics.median(counts) if counts else 0.0


def _own(head: Sequence[Block]) -> float:
    """Return the seconds that the candidate's calls take in the median block."""
    return statistics.median(block.took for block in head)
