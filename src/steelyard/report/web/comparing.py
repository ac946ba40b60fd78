"""The comparison of a page: every delta with both sides' figures, and what could not be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from steelyard.analyze.compare import Comparison, RunsSide, base_kinds, compare, own_pairs
from steelyard.analyze.stacks import newest, quad
from steelyard.model.effects import change
from steelyard.model.pair import Delta, weigh
from steelyard.model.record import BAD, Figure, unweighed
from steelyard.report.cells import clean, reason, shortened
from steelyard.report.columns import base_name
from steelyard.report.web.schema import BadEntry, ComparisonPart, DeltaEntry
from steelyard.store.runs import Run

LONGEST_REASON, MOST_REBUILDS, LONGEST_LOG = 300, 200, 30.0
MISSING = "missing"


def find_comparison(runs: Sequence[Run], base: RunsSide | None) -> Comparison | None:
    """The comparisons of a page: the runs with a base if one is named, else the pairs inside them."""
    if base is not None and runs:
        return compare(base, RunsSide(_named(runs), tuple(runs)))
    weighed = [run for run in runs if run.pairs or unweighed(run.records)]
    return own_pairs(RunsSide(_named(weighed[-1:]), tuple(weighed))) if weighed else None


def _named(runs: Sequence[Run]) -> str:
    return runs[0].id if len(runs) == 1 else f"{len(runs)} runs"


def comparison_part(found: Comparison, runs: Sequence[Run], base: RunsSide | None) -> ComparisonPart:
    """A comparison as data; `bad` lists what is broken on either side."""
    inside = found.base == found.head
    several = inside and len(base_kinds(found.deltas)) > 1
    bad = [] if inside else _bad(base.runs if base else (), "base")
    centres = {(weigh(pair).base, pair.head.id): pair.centres for run in runs for pair in run.pairs} if inside else {}
    return ComparisonPart(
        base=found.base,
        head=found.head,
        paired=inside,
        notes=[clean(note) for note in (*([found.suite.words] if found.suite else []), *found.notes)],
        means={metric: (mean.ratio, mean.n, mean.low, mean.high) for metric, mean in found.means.items()},
        deltas=[_delta(found, delta, several, centres.get((delta.base, delta.head), ())) for delta in found.deltas],
        new=found.new,
        missing=list(dict.fromkeys(delta.base for delta in found.deltas if delta.verdict == MISSING)),
        bad=[*bad, *_bad(runs, "head")],
    )


def _delta(found: Comparison, delta: Delta, several: bool, centres: Sequence[float]) -> DeltaEntry:
    """One delta; its effect names the base if there are several, and only the total time has rebuilds."""
    before, after = found.figures.get(delta.metric, {}).get(delta.head, (None, None))
    rebuilds = list(centres) if delta.metric == "time" and delta.paired else []
    return DeltaEntry(
        case=delta.head,
        base=delta.base,
        metric=delta.metric,
        ratio=delta.ratio,
        low=delta.low,
        high=delta.high,
        margin=delta.margin,
        verdict=delta.verdict,
        effect=delta.effect + (base_name(delta) if several and delta.ratio else ""),
        paired=delta.paired,
        reason=clean(shortened("; ".join(filter(None, (delta.reason, _alone(delta, before, after)))), LONGEST_REASON)),
        p=delta.p,
        before=quad(before),
        after=quad(after),
        rebuilds=[math.exp(centre) if abs(centre) < LONGEST_LOG else None for centre in rebuilds[:MOST_REBUILDS]],
    )


def _alone(delta: Delta, before: Figure | None, after: Figure | None) -> str:
    """A note if the ratio of the two times shown is outside the interleaved effect: each was timed alone."""
    if not delta.paired or delta.low is None or delta.high is None or not before or not after or min(before.value, after.value) <= 0:
        return ""
    alone = after.value / before.value
    if not math.isfinite(alone) or delta.low <= alone <= delta.high:
        return ""
    return f"timed alone, head is {change(alone, metric=delta.metric)}; the verdict uses the interleaved pairs"


def _bad(runs: Sequence[Run], side: Literal["base", "head"]) -> list[BadEntry]:
    return [
        BadEntry(item.record.id, item.record.status, clean(shortened(reason(item.record), LONGEST_REASON)), side)
        for item in newest(runs)
        if item.record.status in BAD
    ]
