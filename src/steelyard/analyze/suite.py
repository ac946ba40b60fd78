"""The common change of all cases of a comparison, which each alone may be too noisy to show, and whether it may come from the machine.

The common ratio is the median of the cases' ratios, so a few large changes do not move it. Its interval has two parts: how
well that median is known, and how much two sides differ in all cases alike without any change. The second part is
zero if both arms were measured interleaved; for runs made apart it comes from replicates that take turns or from earlier
runs. If it is unknown, it is assumed, because then a change of the code cannot be distinguished from one of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from steelyard.analyze.noise import ASSUMED_FREEDOM, DEFAULT, LEAST, TINY, exp, robust_sd
from steelyard.measuring.evidence import Spread
from steelyard.measuring.stats import t_cdf, t_quantile
from steelyard.model.pair import ALPHA, Delta, judge

FEWEST = 3
NAME = "all cases"
MEDIAN_LOSS = 1.2533
"""The SD of a median divided by that of a mean, for normal values."""
ROBUST_FREEDOM = 0.37
NO_OTHER = "measure the changed cases again, interleaved: --confirm; or run both sides in turns (base, head, base, head) and name all runs"


@dataclass(frozen=True)
class Suite:
    """A statement about all cases together: `delta` has the common ratio with its full interval, and the verdict.

    `low` and `high` are the interval from the cases alone, which holds if the machine did not change. `along` counts the cases that
    moved beyond the margin in the direction of the common ratio. `machine` is whether a lasting change of the machine would look
    the same, `reason` is what the verdict is based on, and `do` what would settle it if it is open. `common` is how much runs made
    apart are known to differ in all cases alike.

    If cases have different margins, the verdict is `same` only within the smallest, and a change beyond the margin only beyond the largest.
    """

    delta: Delta
    cases: int
    along: int
    low: float
    high: float
    machine: bool
    reason: str
    do: str = ""
    common: Spread | None = None

    @property
    def words(self) -> str:
        """`all 20 cases together: 10 % slower [7, 13], not confirmed; base and head differ more than runs usually do`."""
        return f"all {self.cases} cases together: {self.delta.effect}; {self.reason}{f': {self.do}' if self.do else ''}"


def apart(
    ratios: Mapping[str, float],
    margin: float,
    *,
    common: Spread | None,
    alternating: bool,
    alpha: float = ALPHA,
    widest: float | None = None,
) -> Suite | None:
    """The common change from log-ratios of runs made apart; `common` is how much such sides differ in all cases alike without a change.

    The margins of the cases are between `margin` and `widest`.
    """
    if len(ratios) < FEWEST:
        return None
    cases = _middle(list(ratios.values()))
    shared = common or Spread(math.sqrt(2) * DEFAULT, ASSUMED_FREEDOM)
    whole = Spread(math.hypot(cases.sd, shared.sd), min(cases.freedom, shared.freedom))
    found = _told(ratios, (margin, widest or margin), whole, cases, alpha, paired=False)
    if common is None:
        reason = (
            "in runs made apart a change of all cases looks the same as one of the machine, and no earlier runs show how much runs differ"
        )
    elif alternating:
        reason = "the runs of both sides take turns in time, so machine drift hits both"
    elif found.direction:
        reason = "base and head differ more than runs usually do; a lasting change of the machine would look the same"
    else:
        reason = "base and head differ no more than runs usually do"
    decided = found.verdict == "same" or (alternating and found.material)
    made = _suite(found, ratios, cases, alpha, machine=not alternating, reason=reason, do="" if decided else NO_OTHER)
    return replace(made, common=common)


def together(deltas: Sequence[Delta], alpha: float = ALPHA) -> Suite | None:
    """The common change of the times of cases measured interleaved; None for fewer than FEWEST cases."""
    known = [delta for delta in _of_time(deltas) if delta.paired and delta.low and delta.high]
    if len(known) < FEWEST:
        return None
    ratios = {delta.head: math.log(delta.ratio) for delta in known if delta.ratio}
    halves = [(math.log(delta.high) - math.log(delta.low)) / 2 for delta in known if delta.low and delta.high]
    cases = _middle(list(ratios.values()), median(halves) / t_quantile(1 - alpha / 2, ASSUMED_FREEDOM))
    found = _told(ratios, [delta.margin for delta in known], cases, cases, alpha, paired=True)
    reason = "both arms were measured interleaved"
    do = "" if found.verdict == "same" or found.material else "more time settles it: --budget thorough"
    return _suite(found, ratios, cases, alpha, machine=False, reason=reason, do=do)


def retold(suite: Suite | None, deltas: Sequence[Delta]) -> Suite | None:
    """The statement after some cases were measured again.

    If these are most of the cases, it is made from them. Otherwise the old one is kept, unless at least half of the repeated cases
    contradict it: then the common shift came from the machine, and there is no statement.
    """
    if suite is None:
        return None
    known = _of_time(deltas)
    again = [delta for delta in known if delta.paired]
    if 2 * len(again) > len(known) and (found := together(again)):
        left = len(known) - len(again)
        return replace(found, reason=f"{found.reason}, except in {left} more case{'' if left == 1 else 's'}") if left else found
    return None if _refuted(suite, again) else suite


def _refuted(suite: Suite, again: Sequence[Delta]) -> bool:
    """Whether at least half of the cases measured again did not move in the direction of all cases."""
    if suite.delta.paired or suite.delta.verdict == "same" or not suite.delta.ratio:
        return False
    cleared = ("same", "faster" if suite.delta.ratio > 1 else "slower")
    return bool(again) and 2 * sum(delta.verdict in cleared for delta in again) >= len(again)


def narrowed(suite: Suite | None, deltas: Sequence[Delta], left_out: Collection[str], alpha: float = ALPHA) -> Suite | None:
    """The statement about the cases that are not left out, each with its present margin; None if they are too few."""
    if suite is None:
        return None
    known = [delta for delta in _of_time(deltas) if delta.paired or not suite.delta.paired]
    kept = [delta for delta in known if delta.head not in left_out]
    if len(kept) == len(known) and all(delta.margin == suite.delta.margin for delta in kept):
        return suite
    if suite.delta.paired:
        found = together(kept)
        return found and replace(found, reason=suite.reason)
    margins = [delta.margin for delta in kept] or [suite.delta.margin]
    ratios = {delta.head: math.log(delta.ratio) for delta in kept if delta.ratio}
    return apart(ratios, min(margins), common=suite.common, alternating=not suite.machine, alpha=alpha, widest=max(margins))


def _of_time(deltas: Sequence[Delta]) -> list[Delta]:
    return [delta for delta in deltas if delta.metric == "time" and delta.sound]


def _middle(ratios: Sequence[float], least: float = LEAST) -> Spread:
    """The uncertainty of the median of log-ratios, from their spread, which is taken to be at least `least`."""
    centre = median(ratios)
    sd = max(robust_sd([ratio - centre for ratio in ratios]), least, TINY)
    return Spread(MEDIAN_LOSS * sd / math.sqrt(len(ratios)), max(2.0, ROBUST_FREEDOM * (len(ratios) - 1)))


def _told(ratios: Mapping[str, float], margins: Sequence[float], whole: Spread, cases: Spread, alpha: float, *, paired: bool) -> Delta:
    centre = median(list(ratios.values()))
    half = max(t_quantile(1 - alpha / 2, spread.freedom) * spread.sd for spread in (whole, cases))
    low, high = exp(centre - half), exp(centre + half)
    p = min(1.0, max(0.0, 2 * (1 - t_cdf(abs(centre) / whole.sd, whole.freedom))))
    verdict = judge(low, high, min(margins))
    margin = min(margins) if verdict == "same" else max(margins)
    return Delta(NAME, NAME, "time", exp(centre), low, high, margin, verdict, paired=paired, p=p)


def _suite(delta: Delta, ratios: Mapping[str, float], cases: Spread, alpha: float, *, machine: bool, reason: str, do: str) -> Suite:
    centre, half = median(list(ratios.values())), t_quantile(1 - alpha / 2, cases.freedom) * cases.sd
    reach = math.log(1 + delta.margin)
    along = sum(value > reach if centre > 0 else value < -reach for value in ratios.values())
    return Suite(delta, len(ratios), along, exp(centre - half), exp(centre + half), machine, reason, do)
