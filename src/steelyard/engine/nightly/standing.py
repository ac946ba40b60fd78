"""Which night a case is compared with, decided in one place for all commands.

A night becomes the base of a case if the case is not slower in it than in the base before, as far as was measured. A night in which
the case is slower never does, unless a user accepts it by name; nor does one in which it looks slower beyond the margin and could
not be measured again, or in which it failed. So a case that got slower is compared with the last good night, night after night,
until it is fixed or accepted.

Besides the base, every case has an anchor: the oldest good night, in a window, since the case was last accepted or found faster.
Compared with the anchor, steps that are too small to be detected in any one night add up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from steelyard.analyze.gate import Judged
from steelyard.engine.nightly.lines import UNFINISHED, Night, Why, Withheld
from steelyard.model.pair import Delta
from steelyard.model.record import Record

WINDOW = 30
"""An anchor is at most this many nights old."""
GOOD_VERDICTS = ("same", "faster")
TOLD_SLOWER = ("regression", "slower")

Statuses = Callable[[Night], Mapping[str, str]]
"""Returns the statuses of a night's cases; empty if its run cannot be read any more."""


@dataclass(frozen=True)
class Base:
    """The night that a case is compared with, and why a newer night is not the base, if there is one."""

    run: str
    pending: Withheld | None = None

    @property
    def told_slower(self) -> bool:
        """Whether an earlier night found the case slower, by any amount."""
        return self.pending is not None and self.pending.why in TOLD_SLOWER


def base_of(case: str, nights: Sequence[Night], statuses: Statuses) -> Base | None:
    """Return the base of a case after these nights of one experiment and machine, oldest first; None if it has no base."""
    places = {night.run: place for place, night in enumerate(nights)}
    taken = max((place for place, night in enumerate(nights) if night.accepts(case) and _ended(night)), default=-1)
    for place in range(len(nights) - 1, taken, -1):
        night = nights[place]
        held = night.held_back(case)
        if held and _ended(night):
            kept = places.get(held.base)
            if kept is not None and kept >= taken and case in statuses(nights[kept]):
                return Base(held.base, held)
            if taken >= 0:
                break
        elif night.may_be_base(case) and statuses(night).get(case) == "ok":
            return Base(night.run)
    return Base(nights[taken].run) if taken >= 0 and case in statuses(nights[taken]) else None


def bases(nights: Sequence[Night], statuses: Statuses, tonight: Collection[str] = ()) -> dict[str, Base]:
    """Return the base of every case that tonight has or should have: all cases of the last completed night, and those it withheld."""
    known = dict.fromkeys(tonight)
    last = next((night for night in reversed(nights) if _ended(night) and statuses(night)), None)
    if last:
        known |= dict.fromkeys([*statuses(last), *(item.case for item in last.withheld or ())])
    found = {case: base_of(case, nights, statuses) for case in known}
    return {case: base for case, base in found.items() if base}


def good_nights(case: str, nights: Sequence[Night]) -> list[Night]:
    """Return the nights that may be a case's anchor: those since it was accepted or found faster, except nights in which it was slower."""
    recent = nights[-WINDOW:]
    start = max((place for place, night in enumerate(recent) if night.accepts(case) or case in night.faster), default=0)
    return [night for night in recent[start:] if night.may_be_base(case)]


def looks_slower(delta: Delta) -> bool:
    """Whether a figure is slower by any amount, or is an unclear time whose middle is beyond the margin."""
    beyond = delta.metric == "time" and delta.ratio is not None and delta.ratio > 1 + delta.margin
    return delta.verdict == "slower" or (delta.verdict == "unclear" and beyond)


@dataclass(frozen=True)
class Tonight:
    """The results of a night: `deltas`, the kinds of counting findings by case, the records, and the result for all cases together.

    `excused` says whether a case may be slower; `trusted` whether unpaired results suffice to call it fixed.
    """

    run: str
    deltas: Sequence[Delta] = ()
    counted: Mapping[str, Collection[str]] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)
    suite: Judged | None = None
    excused: Callable[[str], bool] = lambda case: False
    trusted: Callable[[str], bool] = lambda case: False


def withhold(before: Mapping[str, Base], tonight: Tonight) -> list[Withheld]:
    """Return the cases that tonight is not a base for."""
    by_case: dict[str, list[Delta]] = {}
    for delta in tonight.deltas:
        by_case.setdefault(delta.head, []).append(delta)
    found = []
    for case, base in before.items():
        told = by_case.get(case, [])
        why, together = _why(case, told, tonight, base.pending)
        if why:
            shown = next((item for item in sorted(told, key=lambda item: item.verdict != "slower") if item.ratio), base.pending)
            ends = (shown.ratio, shown.low, shown.high) if shown else (None, None, None)
            since, drift = (base.pending.since, base.pending.drift) if base.pending else (tonight.run, False)
            metric = shown.metric if shown else "time"
            found.append(Withheld(case, why, base.run, since, *ends, drift=drift, together=together, metric=metric))
    return found


def _why(case: str, told: Sequence[Delta], tonight: Tonight, pending: Withheld | None) -> tuple[Why | None, bool]:
    """Return why tonight is not a base for a case, and whether only the result for all cases together is the reason."""
    alone = _alone(case, told, tonight, pending)
    shared = _shared(told, tonight.suite)
    kept = pending is not None and pending.together and not any(delta.verdict == "slower" for delta in told)
    if shared is None or alone in ("failed", "missing") or tonight.excused(case):
        return alone, kept and alone in TOLD_SLOWER
    if alone == "regression" or (alone == "slower" and shared == "slower"):
        return alone, kept
    return shared, True


def _shared(told: Sequence[Delta], suite: Judged | None) -> Why | None:
    """Return the reason for a case if all cases together are slower; None if the case itself is within the margin or faster."""
    if suite is None or suite.verdict != "slower":
        return None
    left = any(item.metric == "time" and item.ratio and item.verdict not in GOOD_VERDICTS for item in told)
    return None if not left else "regression" if suite.counts else "slower"


def _alone(case: str, told: Sequence[Delta], tonight: Tonight, pending: Withheld | None) -> Why | None:
    kinds = set(tonight.counted.get(case, ()))
    if "regression" in kinds:
        return "regression"
    if {"missing", "failed"} & kinds:
        return "missing" if case not in tonight.records else "failed"
    if tonight.excused(case):
        return None
    if any(delta.verdict == "slower" for delta in told):
        return "slower"
    if pending and pending.why in TOLD_SLOWER and not is_fixed(pending, tonight):
        return pending.why
    if any(map(looks_slower, told)):
        return "unclear"
    return pending.why if pending and not any(delta.ratio for delta in told) else None


def is_fixed(pending: Withheld, tonight: Tonight) -> bool:
    """Whether tonight shows that a case is no longer slower: within the margin, or faster.

    Unpaired results cannot clear a regression, which a paired measurement confirmed. One that only all cases together showed, a later
    result for all cases together can clear.
    """
    trusted = pending.why != "regression" or pending.metric != "time" or tonight.trusted(pending.case)
    own = [item for item in tonight.deltas if item.head == pending.case and item.metric == pending.metric]
    if any(item.verdict in GOOD_VERDICTS and (item.paired or trusted) for item in own):
        return True
    suite = tonight.suite
    if not pending.together or not suite or suite.verdict not in GOOD_VERDICTS or not (suite.paired or trusted):
        return False
    return any(item.ratio and not looks_slower(item) for item in own)


def _ended(night: Night) -> bool:
    return night.outcome != UNFINISHED
