"""Slow drift: steps too small to be detected in any one night, which add up since the oldest good night of a window (the anchor).

Levels are compared, not nights: the median of the first good nights since the anchor with the median of the last ones, using the
noise of earlier nights. This alone is only reported. A case that looks slower beyond the margin is measured again, tonight's commit
and the anchor's interleaved; if that confirms it, it is a regression like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from steelyard.analyze import gate
from steelyard.analyze.compare import Confirm, replaced
from steelyard.analyze.gate import Judged
from steelyard.analyze.history import History
from steelyard.analyze.noise import Past, exp
from steelyard.codec.policy import Policy
from steelyard.engine.nightly.against import Before
from steelyard.engine.nightly.lines import Why, Withheld
from steelyard.engine.nightly.standing import good_nights, looks_slower
from steelyard.errors import SteelyardError, told
from steelyard.measuring.stats import t_quantile
from steelyard.model.pair import ALPHA, MARGIN, Delta, judge
from steelyard.model.record import Record
from steelyard.store.runs import Run

FEWEST = 4
"""Fewest nights for a drift, including tonight: with fewer, a level would be a single night."""
LEVEL = 3
"""A level is the median of this many nights, or of half of the nights if these are fewer than six."""
MEDIAN_LOSS = 1.16
"""The SD of a median of three values divided by that of their mean."""


@dataclass(frozen=True)
class Drift:
    """The change of a case over `nights` nights since its anchor, the run of an older night; paired once it was measured again."""

    delta: Delta
    anchor: Run
    nights: int

    @property
    def words(self) -> str:
        """Since when the case drifts, why no single night showed it, and whether it is confirmed."""
        since = f"since the night of {self.anchor.header.created[:10]} ({self.anchor.id})"
        found = f"drift over {self.nights} nights {since}, in steps too small to be detected one by one"
        return found if self.delta.paired else f"{found}; unpaired, not confirmed"


def find_drift(
    run: Run, before: Before, series: Mapping[str, History], past: Past | None, deltas: Sequence[Delta], policy: Policy
) -> list[Drift]:
    """Return the cases that are or look slower than their anchor, although tonight does not look slower than their base."""
    known = {delta.head for delta in deltas if looks_slower(delta)} | {case for case, base in before.bases.items() if base.told_slower}
    found = []
    for record in run.records:
        if past is None or record.id in known or record.id not in series or record.id not in before.bases:
            continue
        drift = _of_case(record, before, series[record.id], past, policy.margins_of(record.id).get("time", MARGIN), run.id)
        if drift and looks_slower(drift.delta) and not gate.excuse(policy, record.id, "slower"):
            found.append(drift)
    return found


def _of_case(record: Record, before: Before, history: History, past: Past, margin: float, tonight: str) -> Drift | None:
    good, spread = [night.run for night in good_nights(record.id, before.nights)], past.of(record.id)
    times = {point.run: point.time for point in history.points if point.run in good or point.run == tonight}
    anchor = next(_fitting(record, [run for run in good if run in times], before.open), None)
    if anchor is None or spread is None or anchor.id == before.bases[record.id].run or tonight not in times:
        return None
    runs = [run for run in times if run != tonight]
    logs = [math.log(times[run]) for run in (*runs[runs.index(anchor.id) :], tonight)]
    if len(logs) < FEWEST:
        return None
    count = min(LEVEL, len(logs) // 2)
    ratio = median(logs[-count:]) - median(logs[:count])
    half = t_quantile(1 - ALPHA / 2, spread.freedom) * spread.sd * math.sqrt(2 / count) * (MEDIAN_LOSS if count == LEVEL else 1)
    moved, low, high = (exp(end) for end in (ratio, ratio - half, ratio + half))
    delta = Delta(record.id, record.id, "time", moved, low, high, margin, judge(low, high, margin), paired=False)
    return Drift(delta, anchor, len(logs))


def _fitting(record: Record, runs: Sequence[str], open_run: Callable[[str], Run | None]) -> Iterator[Run]:
    """Yield the runs, oldest first, with the case's present workload and versions; a change of either would explain a change of time."""
    for id in runs:
        run = open_run(id)
        old = next((item for item in reversed(run.records) if item.id == record.id), None) if run else None
        same_source = old is not None and old.source.get("workload") == record.source.get("workload")
        if run and old and same_source and old.environment == record.environment:
            yield run


def drifted(found: Sequence[Drift], again: Callable[[Run], Confirm], confirm: bool) -> tuple[list[Drift], list[str]]:
    """Measure drifted cases again, interleaved with their anchor's commit; if that fails they stay as found, and a note has the reason."""
    made: list[Drift] = []
    notes: list[str] = []
    if not confirm:
        return list(found), notes
    for id in dict.fromkeys(item.anchor.id for item in found):
        part = [item for item in found if item.anchor.id == id]
        try:
            deltas, said = replaced([item.delta for item in part], [item.delta for item in part], again(part[0].anchor), "that drifted")
        except SteelyardError as error:
            deltas, said = [item.delta for item in part], [f"drift is not confirmed: {told(error)}"]
        made += [replace(item, delta=delta) for item, delta in zip(part, deltas, strict=True)]
        notes += said
    return made, notes


def findings_of(found: Sequence[Drift], policy: Policy, *, strict: bool = False) -> list[Judged]:
    """Return the findings for the gate: a confirmed drift beyond the margin counts; any other slower case is listed, and counts if
    `strict`."""
    strict, sure = strict or policy.unclear == "fail", policy.unconfirmed == "fail"
    made = []
    for item in found:
        delta = item.delta
        if delta.verdict != "slower":
            continue
        beyond = delta.material and replace(delta, margin=policy.floor or 0.0).material
        ends = (delta.ratio, delta.low, delta.high, delta.margin)
        kind: gate.Kind = "slower" if not beyond else "regression" if delta.paired or sure else "not confirmed"
        counts = strict or kind == "regression"
        made.append(Judged(kind, delta.head, delta.base, "time", *ends, delta.paired, item.words, counts=counts, verdict=delta.verdict))
    return made


def withheld_by(found: Sequence[Drift], held: Sequence[Withheld], findings: Sequence[Judged], run: str) -> list[Withheld]:
    """Return the withheld cases with those that have drifted, which stay compared with their anchor."""
    made = {item.case: item for item in held}
    regressed = {finding.case for finding in findings if finding.kind == "regression" and finding.counts}
    for item in found:
        delta = item.delta
        if delta.verdict == "slower" and (delta.paired or delta.head in regressed):
            why: Why = "regression" if delta.head in regressed else "slower"
            made[delta.head] = Withheld(delta.head, why, item.anchor.id, run, delta.ratio, delta.low, delta.high, drift=True)
    return list(made.values())
