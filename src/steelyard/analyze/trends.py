"""Speedup over runs: each stack compared with the oldest time of a baseline, by its mean, by its quantiles, and in its newest run.

PyTorch/XLA has a report for each of these: `speedup` is the geometric mean by date, `histogram` the percentiles by date, and
`latest` the workloads of each stack's newest run from the slowest to the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np

from steelyard.analyze.history import History, Point
from steelyard.analyze.matrix import over
from steelyard.analyze.stacks import Grid, Plain, Words, grid, pick, words
from steelyard.model.record import Figure
from steelyard.store.runs import moment

Rows = Mapping[str, Point]
"""One point for each row."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
FEWEST = 2


@dataclass(frozen=True)
class Trend:
    """One stack in one run: the geometric mean of its speedups over n rows, and their quantiles.

    The rows are those that all stacks of the run have, so that stacks can be compared; if they share none,
    the stack's own rows.
    """

    run: str
    created: str
    column: str
    mean: float
    n: int
    q10: float
    q25: float
    q50: float
    q75: float
    q90: float


@dataclass(frozen=True)
class Standing:
    """One row of a stack's newest run: its speedup, with the widest interval that the two times allow."""

    column: str
    row: str
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Trends:
    """The speedups of all stacks; a speedup is the baseline's oldest time of the row over the stack's time in that run."""

    baseline: str
    columns: list[str]
    points: list[Trend]
    latest: list[Standing]


def trends(series: Mapping[str, History], cases: Mapping[str, Plain], *, baseline: str | None = None, told: Words = words) -> Trends | None:
    """Speedups over time, from series of one machine; None if there are fewer than two runs or no baseline."""
    known = _of_one_machine({id: item for id, item in series.items() if item.points and id in cases})
    runs = _runs(known)
    if len(runs) < FEWEST:
        return None
    laid = grid({id: cases[id] for id in known}, told)
    counts: dict[str, int] = {}
    for id, (_, column) in laid.place.items():
        counts[column] = counts.get(column, 0) + len(known[id].points)
    chosen = pick(laid.columns, counts, baseline)
    first = {row: known[id].points[0] for id, (row, column) in laid.place.items() if column == chosen}
    reached: dict[tuple[str, str], dict[str, Point]] = {}
    for id, (row, column) in laid.place.items():
        for point in known[id].points if row in first else ():
            reached.setdefault((point.run, column), {})[row] = point
    if not reached:
        return None
    points = [made for run, created in runs.items() for made in _of_run(run, created, laid.columns, reached, first)]
    shown = [column for column in laid.columns if any(point.column == column for point in points)]
    return Trends(chosen, shown, points, _latest(shown, points, reached, first, laid))


def _of_one_machine(series: Mapping[str, History]) -> dict[str, History]:
    """Only the series of the machine with the newest point, since times of two machines have no ratio."""
    if not series:
        return {}
    newest = max(series.values(), key=lambda item: moment(item.points[-1].created)).machine_key
    return {id: item for id, item in series.items() if item.machine_key == newest}


def _runs(series: Mapping[str, History]) -> dict[str, str]:
    """The start of each run, oldest first."""
    found: dict[str, str] = {}
    for item in series.values():
        for point in item.points:
            if point.run not in found or moment(point.created) < moment(found[point.run]):
                found[point.run] = point.created
    return dict(sorted(found.items(), key=lambda run: moment(run[1])))


def _of_run(run: str, created: str, columns: Sequence[str], reached: Mapping[tuple[str, str], Rows], first: Rows) -> Iterable[Trend]:
    """Every stack of one run, over the rows that all of them have."""
    found = {column: rows for column in columns if (rows := reached.get((run, column)))}
    common = set[str].intersection(*(set(rows) for rows in found.values())) if found else set()
    for column, rows in found.items():
        speedups = [first[row].time / rows[row].time for row in rows if row in common or not common]
        quantiles = (float(value) for value in np.quantile(speedups, QUANTILES))
        yield Trend(run, created, column, geometric_mean(speedups), len(speedups), *quantiles)


def _latest(columns: list[str], points: list[Trend], reached: Mapping[tuple[str, str], Rows], first: Rows, laid: Grid) -> list[Standing]:
    """Each stack's own newest run, from the slowest row to the fastest."""
    found = []
    for column in columns:
        run = next(point.run for point in reversed(points) if point.column == column)
        made = [
            Standing(column, laid.names[row], *over(_figure(first[row]), _figure(point))) for row, point in reached[run, column].items()
        ]
        found += sorted(made, key=lambda item: (item.speedup, item.row))
    return found


def _figure(point: Point) -> Figure:
    return Figure(point.time, "s", "lower", point.low, point.high)
