"""What all cases of a comparison say together: a shift that each of them alone is too noisy to show, and whether it may be the machine's.

The common ratio is the middle of the cases' ratios, so a few that changed much do not make it. Its interval has two parts: how
well the middle of these cases is known, and how far two sides differ in all cases alike without any change. The second is
nothing where both arms were measured interleaved; in runs made apart it comes from replicates that take turns or from earlier
runs, and where nothing shows it, it is assumed, since then the cases cannot tell the code from the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steelyard.analyze.noise import ASSUMED_FREEDOM, DEFAULT, LEAST, TINY, median, robust_sd
from steelyard.measuring.evidence import Spread
from steelyard.measuring.stats import t_cdf, t_quantile
from steelyard.model.pair import ALPHA, Delta, judge

FEWEST = 3
NAME = "all cases"
MEDIAN_LOSS = 1.2533
"""The SD of a median over that of a mean."""
ROBUST_FREEDOM = 0.37
NO_OTHER = "measure what changed again, interleaved: --confirm; or run both sides in turns (base, head, base, head) and name all runs"


@dataclass(frozen=True)
class Suite:
    """One statement about all cases: `delta` has the common ratio with all that is uncertain about it, and the verdict.

    `low` and `high` are its interval by the cases alone, which holds if the machine did nothing. `along` counts the cases that
    moved beyond the margin in the direction of the common ratio. `machine` says that a lasting change of the machine would look
    the same, `reason` what the verdict rests on, and `do` what would settle it, where that is open.
    """

    delta: Delta
    cases: int
    along: int
    low: float
    high: float
    machine: bool
    reason: str
    do: str = ""

    @property
    def settled(self) -> bool:
        """Whether the common ratio is within the margin or wholly beyond it."""
        return self.delta.settled

    @property
    def words(self) -> str:
        """`all 20 cases together: 10 % slower [7, 13], not confirmed; further apart than runs usually are`."""
        return f"all {self.cases} cases together: {self.delta.effect}; {self.reason}{f': {self.do}' if self.do else ''}"


def apart(ratios: Mapping[str, float], margin: float, *, common: Spread | None, alternating: bool, alpha: float = ALPHA) -> Suite | None:
    """What log-ratios of runs made apart say together; `common` is how far such sides differ in all cases alike."""
    if len(ratios) < FEWEST:
        return None
    cases = _middle(list(ratios.values()))
    shared = common or Spread(math.sqrt(2) * DEFAULT, ASSUMED_FREEDOM)
    whole = Spread(math.hypot(cases.sd, shared.sd), min(cases.freedom, shared.freedom))
    found = _told(ratios, margin, whole, cases, alpha, paired=False)
    if common is None:
        reason = (
            "two runs made apart cannot tell a change of all cases from the machine's, and no earlier runs show how far they usually differ"
        )
    elif alternating:
        reason = "the runs of both sides take turns in time, so the machine's moods hit both"
    elif found.direction:
        reason = "further apart than runs usually are; a lasting change of the machine would look the same"
    else:
        reason = "no further apart than runs usually are"
    decided = found.verdict == "same" or (alternating and found.material)
    return _suite(found, ratios, cases, alpha, machine=not alternating, reason=reason, do="" if decided else NO_OTHER)


def together(deltas: Sequence[Delta], alpha: float = ALPHA) -> Suite | None:
    """What cases that were measured interleaved say together; None where they are few, or another figure than time."""
    known = [delta for delta in deltas if delta.paired and delta.metric == "time" and delta.ratio and delta.low and delta.high]
    if len(known) < FEWEST:
        return None
    ratios = {delta.head: math.log(delta.ratio) for delta in known if delta.ratio}
    halves = [(math.log(delta.high) - math.log(delta.low)) / 2 for delta in known if delta.low and delta.high]
    cases = _middle(list(ratios.values()), median(halves) / t_quantile(1 - alpha / 2, ASSUMED_FREEDOM))
    found = _told(ratios, median([delta.margin for delta in known]), cases, cases, alpha, paired=True)
    reason = "both arms were measured interleaved"
    do = "" if found.verdict == "same" or found.material else "more time settles it: --budget thorough"
    return _suite(found, ratios, cases, alpha, machine=False, reason=reason, do=do)


def retold(suite: Suite | None, deltas: Sequence[Delta]) -> Suite | None:
    """The statement once some cases were measured again: theirs where that is all of them, else the one that all cases made."""
    known = [delta for delta in deltas if delta.metric == "time" and delta.ratio is not None]
    return (together(known) or suite) if known and all(delta.paired for delta in known) else suite


def _middle(ratios: Sequence[float], least: float = LEAST) -> Spread:
    """How well the middle of log-ratios is known by their spread, and by no less noise in each than `least`."""
    centre = median(ratios)
    sd = max(robust_sd([ratio - centre for ratio in ratios]), least, TINY)
    return Spread(MEDIAN_LOSS * sd / math.sqrt(len(ratios)), max(2.0, ROBUST_FREEDOM * (len(ratios) - 1)))


def _told(ratios: Mapping[str, float], margin: float, whole: Spread, cases: Spread, alpha: float, *, paired: bool) -> Delta:
    centre = median(list(ratios.values()))
    half = max(t_quantile(1 - alpha / 2, spread.freedom) * spread.sd for spread in (whole, cases))
    low, high = _exp(centre - half), _exp(centre + half)
    p = min(1.0, max(0.0, 2 * (1 - t_cdf(abs(centre) / whole.sd, whole.freedom))))
    return Delta(NAME, NAME, "time", _exp(centre), low, high, margin, judge(low, high, margin), paired=paired, p=p)


def _suite(delta: Delta, ratios: Mapping[str, float], cases: Spread, alpha: float, *, machine: bool, reason: str, do: str) -> Suite:
    centre, half = median(list(ratios.values())), t_quantile(1 - alpha / 2, cases.freedom) * cases.sd
    reach = math.log(1 + delta.margin)
    along = sum(value > reach if centre > 0 else value < -reach for value in ratios.values())
    return Suite(delta, len(ratios), along, _exp(centre - half), _exp(centre + half), machine, reason, do)


def _exp(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))
