"""Series of a page: every case over the runs, its changes of level, and the speedups of stacks over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from steelyard.analyze.history import Change, History, Point
from steelyard.analyze.stacks import PlacedRecord, Plain, parse
from steelyard.analyze.trends import Trends, trends
from steelyard.codec.known import known_reason
from steelyard.codec.policy import Excuse
from steelyard.errors import UsageError
from steelyard.model.pair import MARGIN
from steelyard.model.record import Record
from steelyard.report.cells import facets
from steelyard.report.web.cases import labels
from steelyard.report.web.plain import plain

FEWEST = 2
SHORTEST = 10
COMMIT = 12
SHORTEST_TIME, LONGEST_TIME = 1e-30, 1e30


def history_part(
    series: Mapping[str, History],
    machines: Mapping[str, int],
    cases: Mapping[str, Plain],
    baseline: str | None,
    most: int,
    known: Sequence[Excuse] = (),
) -> dict[str, Any] | None:
    """All series with two points or more. `most` is how many points there may be in all.

    Changes that are `known` are marked with the reason.
    """
    whole = {key: item for key, item in series.items() if len(item.points) >= FEWEST}
    kept = within(whole, most)
    if not kept:
        return None
    ids = dict.fromkeys(item.case for item in kept.values())
    names = labels([PlacedRecord(Record(case, parse(case), "ok"), 0, 0) for case in ids])
    return {
        "series": [_series(item, names[item.case], machines, known) for item in kept.values()],
        "trends": _trends(whole.values(), cases, baseline),
    }


def _trends(series: Iterable[History], cases: Mapping[str, Plain], baseline: str | None) -> Trends | None:
    """Speedups over time, from all points: series are kept because they changed, so means over the kept ones would be biased."""
    known: dict[str, History] = {}
    for item in series:
        known.setdefault(item.case, _sound(item))
    named = {case: cases.get(case) or parse(case) for case in known}
    try:
        return trends(known, named, baseline=baseline, told=facets)
    except UsageError:
        return trends(known, named, told=facets)


def within(series: Mapping[str, History], most: int) -> dict[str, History]:
    """As many whole series as there is room for, those that changed most first; then the newest points of the other series."""
    if sum(len(item.points) for item in series.values()) <= most:
        return dict(series)
    changed = sorted((key for key, item in series.items() if item.changes), key=lambda key: -_furthest(series[key]))
    share = max(SHORTEST, most // len(series))
    kept: dict[str, History] = {}
    for key in dict.fromkeys([*changed, *series]):
        item = series[key] if series[key].changes else newest_of(series[key], share)
        if len(item.points) <= most:
            kept[key], most = item, most - len(item.points)
    return {key: kept[key] for key in series if key in kept}


def _sound(item: History) -> History:
    """The series without times that have no ratio: a damaged file may have zero, negative or impossibly large ones."""
    return replace(item, points=[point for point in item.points if SHORTEST_TIME < point.time < LONGEST_TIME])


def _furthest(item: History) -> float:
    return max(abs(math.log(change.ratio)) for change in item.changes)


def newest_of(item: History, most: int) -> History:
    """The last points of a series, with the changes among them."""
    cut = max(0, len(item.points) - most)
    changes = [replace(change, index=change.index - cut) for change in item.changes if change.index > cut]
    return replace(item, points=item.points[cut:], changes=changes)


def _series(item: History, label: str, machines: Mapping[str, int], known: Sequence[Excuse]) -> dict[str, Any]:
    return {
        "case": item.case,
        "label": label,
        "machine": machines.get(item.machine_key, 0),
        "points": [_point(point) for point in item.points],
        "changes": [{**plain(change), "known": known_reason(known, item.case, change.ratio)} for change in item.changes],
        "broken": item.broken,
        "searched": item.searched,
    }


def _point(point: Point) -> list[Any]:
    when = point.created[:19] + "Z" if point.created.endswith(("Z", "+00:00")) else point.created
    return [point.run, point.number, when, point.time, point.low, point.high, point.commit[:COMMIT], point.dirty, None]


def slower_since(series: Mapping[str, History], known: Sequence[Excuse] = ()) -> Sequence[tuple[str, Change]]:
    """Series whose newest level is slower by more than the margin, the slowest first; without known changes."""
    last = [(item.case, item.changes[-1]) for item in series.values() if item.changes]
    found = [(case, change) for case, change in last if change.low is not None and change.low > 1 + MARGIN]
    found = [(case, change) for case, change in found if not known_reason(known, case, change.ratio)]
    return sorted(found, key=lambda pair: -pair[1].ratio)
