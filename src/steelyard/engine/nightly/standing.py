"""Which night a case is held against, decided once for all commands.

A night becomes the base of a case when it is shown, or at least looks, no slower there than the base before it. A night that is
slower never does, unless someone accepts it by name; nor does one that looks slower beyond the margin and could not be
measured again, or one in which the case broke. So what got slower is compared with the last good night, night after night,
until it is fixed or accepted.

Beside the base every case has an anchor: the oldest good night of a window since it was last accepted or found faster. Steps
that are too small to be seen in any one night add up against the anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from steelyard.analyze.gate import Judged
from steelyard.engine.nightly.lines import UNFINISHED, Night, Why, Withheld
from steelyard.model.pair import Delta
from steelyard.model.record import Record

WINDOW = 30
"""An anchor lies at most this many nights back."""
GOOD_VERDICTS = ("same", "faster")
TOLD_SLOWER = ("regression", "slower")

Statuses = Callable[[Night], Mapping[str, str]]
"""The statuses of a night's cases; none where its run cannot be read any more."""


@dataclass(frozen=True)
class Base:
    """The night that a case is held against, and why it is not a newer one, if so."""

    run: str
    pending: Withheld | None = None

    @property
    def told_slower(self) -> bool:
        """Whether a night before found the case slower, of whatever size."""
        return self.pending is not None and self.pending.why in TOLD_SLOWER


def base_of(case: str, nights: Sequence[Night], statuses: Statuses) -> Base | None:
    """The base of a case after these nights of one experiment and machine, oldest first; None where there is none."""
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
    """The base of every case that tonight has or should have: all cases of the last finished night, and those it withheld."""
    known = dict.fromkeys(tonight)
    last = next((night for night in reversed(nights) if _ended(night) and statuses(night)), None)
    if last:
        known |= dict.fromkeys([*statuses(last), *(item.case for item in last.withheld or ())])
    found = {case: base_of(case, nights, statuses) for case in known}
    return {case: base for case, base in found.items() if base}


def good_nights(case: str, nights: Sequence[Night]) -> list[Night]:
    """The nights of the window that a case may be anchored at: since it was accepted or found faster, and none in which it was slower."""
    recent = nights[-WINDOW:]
    start = max((place for place, night in enumerate(recent) if night.accepts(case) or case in night.faster), default=0)
    return [night for night in recent[start:] if night.may_be_base(case)]


def looks_slower(delta: Delta) -> bool:
    """Slower, whatever its size, or beyond the margin with an interval that leaves it open; what is settled within the margin is not."""
    beyond = delta.metric == "time" and delta.ratio is not None and delta.ratio > 1 + delta.margin
    return delta.verdict == "slower" or (delta.verdict == "unclear" and beyond)


@dataclass(frozen=True)
class Tonight:
    """Results of a night for its cases: `deltas`, the kinds of findings that count by case, its records, and what all cases say as one.

    `excused` tells for a case whether it may be slower, `trusted` whether runs made apart suffice to call it fixed.
    """

    run: str
    deltas: Sequence[Delta] = ()
    counted: Mapping[str, Collection[str]] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)
    suite: Judged | None = None
    excused: Callable[[str], bool] = lambda case: False
    trusted: Callable[[str], bool] = lambda case: False


def withhold(before: Mapping[str, Base], tonight: Tonight) -> list[Withheld]:
    """The cases that tonight is no base for."""
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
    """Why tonight is no base for a case, and whether that is only because all cases together say so."""
    alone = _alone(case, told, tonight, pending)
    shared = _shared(told, tonight.suite)
    kept = pending is not None and pending.together and not any(delta.verdict == "slower" for delta in told)
    if shared is None or alone in ("failed", "missing") or tonight.excused(case):
        return alone, kept and alone in TOLD_SLOWER
    if alone == "regression" or (alone == "slower" and shared == "slower"):
        return alone, kept
    return shared, True


def _shared(told: Sequence[Delta], suite: Judged | None) -> Why | None:
    """What a case is since all cases together are slower: all that is not shown to be as fast as before."""
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
    """Whether tonight shows that what was slower is so no more: settled within the margin, or faster.

    Runs made apart cannot take back a regression, which interleaved ones showed. What all cases showed as one they also take back.
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
