"""A table of models by stacks: which stacks are right, which is fastest, and their speedups over each baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from steelyard.analyze.compare import reach
from steelyard.analyze.machines import MadeOn
from steelyard.analyze.stacks import Grid, PlacedRecord, Quad, Words, bare, grid, pick, quad, variant_of, words
from steelyard.model.effects import bounded
from steelyard.model.pair import Pair
from steelyard.model.record import REFERENCE, Figure
from steelyard.store.runs import Run

MOST_BASELINES = 8
MOST_CELLS = 100_000
FAILED = ("failed", "oom", "timeout", "crashed")

Speedup = tuple[float, float | None, float | None, int]
"""Baseline time over own time with its interval, and 1 if the two were measured as a pair, else 0."""


@dataclass(frozen=True)
class TableRow:
    """A row of the table, which is what is computed: a short name, and its parts."""

    name: str
    workload: str
    params: str
    mode: str


@dataclass(frozen=True)
class Cell:
    """One stack's result for one row."""

    case: str
    status: str
    time: Quad | None


@dataclass(frozen=True)
class SpeedupMean:
    """A geometric mean of speedups over n rows, with the widest possible interval: the errors of all rows add up."""

    mean: float
    n: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Against:
    """All columns compared with one baseline column.

    `means` are over the rows where every column that ever worked is ok, so that they can be compared with each other; `each`
    are over the rows that the column shares with the baseline.
    """

    speedups: list[list[Speedup | None]]
    means: list[SpeedupMean | None]
    each: list[SpeedupMean | None]


@dataclass(frozen=True)
class Passes:
    """Counts of a column's cases by result; `unsupported` are all that could not be run."""

    ok: int
    wrong: int
    failed: int
    unsupported: int
    total: int


@dataclass(frozen=True)
class StackTable:
    """The whole table; `by_baseline` has the most complete columns as baselines, the chosen one first.

    `references` are the columns of backends that only show what is right, and are slow by nature.
    """

    baseline: str
    columns: list[str]
    rows: list[TableRow]
    cells: list[list[Cell | None]]
    by_baseline: dict[str, Against]
    pass_rates: list[Passes]
    references: list[str]


def matrix(
    seen: Sequence[PlacedRecord], runs: Sequence[Run], *, baseline: str | None = None, most: int = MOST_BASELINES, told: Words = words
) -> StackTable | None:
    """The table of the newest records; None if no row has two stacks, or if it would have more than MOST_CELLS cells."""
    records = {item.record.id: item for item in seen}
    laid = grid({id: item.record.case for id, item in records.items()}, told)
    places = {place: id for id, place in laid.place.items()}
    size = len(laid.rows) * len(laid.columns)
    if size > MOST_CELLS:
        return None
    cells = [[_cell(records.get(places.get((row, column), ""))) for column in laid.columns] for row in laid.rows]
    if not any(sum(cell is not None for cell in row) > 1 for row in cells):
        return None
    fine = {name: sum(_fine(row[place]) for row in cells) for place, name in enumerate(laid.columns)}
    chosen = pick(laid.columns, fine, baseline or _versus(runs, laid))
    others = sorted((name for name in laid.columns if name != chosen and fine[name]), key=lambda name: -fine[name])
    weighed = _weighed(runs, records)
    made = {id: MadeOn.of(item.record, runs[item.run].header.machine_key if runs else "") for id, item in records.items()}
    times = [[records[cell.case].record.metrics["time"] if cell and _fine(cell) else None for cell in row] for row in cells]
    bases = {
        name: _against(laid.columns.index(name), cells, times, weighed, made)
        for name in [chosen, *others][: max(1, min(most, MOST_CELLS // size))]
    }
    rows = [
        TableRow(laid.names[key], str(case.get("workload", "")), laid.params[key], str(case.get("mode", "")))
        for key, case in laid.rows.items()
    ]
    passes = [_passes(cells, place) for place in range(len(laid.columns))]
    references = [name for place, name in enumerate(laid.columns) if _is_reference([row[place] for row in cells], records)]
    return StackTable(chosen, list(laid.columns), rows, cells, bases, passes, references)


def _is_reference(column: Sequence[Cell | None], records: Mapping[str, PlacedRecord]) -> bool:
    return any(records[cell.case].record.effective.get(REFERENCE) for cell in column if cell)


def _versus(runs: Sequence[Run], laid: Grid) -> str | None:
    """The base of the newest run's comparisons, if it is a column here."""
    asked = runs[-1].header.settings.get("vs") if runs else None
    known = {name for column in laid.columns for name in (variant_of(column), bare(column))}
    return asked if isinstance(asked, str) and asked in known else None


def _cell(item: PlacedRecord | None) -> Cell | None:
    return None if item is None else Cell(item.record.id, item.record.status, quad(item.record.metrics.get("time")))


def _fine(cell: Cell | None) -> bool:
    return cell is not None and cell.status == "ok" and cell.time is not None and 0 < cell.time[0] < math.inf


Weighed = dict[tuple[str, str], Pair]


def _weighed(runs: Sequence[Run], records: Mapping[str, PlacedRecord]) -> Weighed:
    """Pairs by the ids of both cases, if the newest records of both are from the run that measured the pair."""
    found: Weighed = {}
    for place, run in enumerate(runs):
        for pair in run.pairs:
            arms = [records.get(arm.id) for arm in (pair.base, pair.head)]
            here = all(arm is not None and arm.run == place for arm in arms)
            if here and pair.base.id != pair.head.id and bounded(pair.ratio, pair.low, pair.high):
                found[pair.base.id, pair.head.id] = pair
    return found


def _against(
    base: int, cells: list[list[Cell | None]], times: list[list[Figure | None]], weighed: Weighed, made: Mapping[str, MadeOn]
) -> Against:
    speedups = [_speedups(base, row, known, weighed, made) for row, known in zip(cells, times, strict=True)]
    columns = range(len(cells[0]))
    working = [place for place in columns if any(row[place] for row in speedups)]
    common = [row for row in speedups if all(row[place] for place in working)]
    shown = [mean_of(row[place] for row in common) if place in working else None for place in columns]
    return Against(speedups, shown, [mean_of(row[place] for row in speedups) for place in columns])


def _speedups(
    base: int, cells: list[Cell | None], times: list[Figure | None], weighed: Weighed, made: Mapping[str, MadeOn]
) -> list[Speedup | None]:
    """The speedups of one row; two cases that are not a pair have one only if both were made on one kind of machine."""
    before, known, found = cells[base], times[base], list[Speedup | None]()
    for place, (cell, own) in enumerate(zip(cells, times, strict=True)):
        if place == base and own:
            found.append((1.0, 1.0, 1.0, 1))
            continue
        pair, inverse = (weighed.get((before.case, cell.case)), weighed.get((cell.case, before.case))) if before and cell else (None, None)
        if known is None or own is None:
            found.append(None)
        elif pair:
            found.append((1 / pair.ratio, 1 / pair.high, 1 / pair.low, 1))
        elif inverse:
            found.append((inverse.ratio, inverse.low, inverse.high, 1))
        elif before and cell and made[before.case].like(made[cell.case]):
            found.append((*over(known, own), 0))
        else:
            found.append(None)
    return found


def over(base: Figure, own: Figure) -> tuple[float, float | None, float | None]:
    """One time over another; the interval takes both at their worst, since it is unknown how they are correlated."""
    ends = [end for end in (base.low, base.high, own.low, own.high) if end is not None and 0 < end < math.inf]
    if len(ends) < 4:
        return base.value / own.value, None, None
    return base.value / own.value, ends[0] / ends[3], ends[1] / ends[2]


def mean_of(speedups: Iterable[Speedup | None]) -> SpeedupMean | None:
    """The geometric mean of the existing values."""
    known = [item for item in speedups if item]
    if not known:
        return None
    return SpeedupMean(geometric_mean([item[0] for item in known]), len(known), *reach([item[1:3] for item in known]))


@dataclass(frozen=True)
class Wins:
    """In how many rows each stack is clearly the fastest, most first; `close` counts rows whose two fastest cannot be distinguished."""

    by_column: dict[str, int]
    close: int

    @property
    def rows(self) -> int:
        """Rows that at least two stacks have."""
        return self.close + sum(self.by_column.values())


def wins(table: StackTable) -> Wins:
    """The fastest stack of each row: two stacks differ if their intervals do not overlap, or without intervals if their times differ."""
    found: Counter[str] = Counter()
    close = 0
    for row, cells in enumerate(table.cells):
        ranked = sorted((cell.time[0], place) for place, cell in enumerate(cells) if cell and cell.time and _fine(cell))
        if len(ranked) < 2:
            continue
        first, second = (place for _, place in ranked[:2])
        if _incomparable(table, row, first, second):
            continue
        if _apart(table, row, first, second):
            found[table.columns[first]] += 1
        else:
            close += 1
    return Wins(dict(found.most_common()), close)


def _incomparable(table: StackTable, row: int, first: int, second: int) -> bool:
    """Whether two stacks that are ok have no speedup over each other, because different machines made them."""
    against = [(table.by_baseline.get(table.columns[place]), other) for place, other in ((first, second), (second, first))]
    return any(known and known.speedups[row][other] is None for known, other in against)


def _apart(table: StackTable, row: int, first: int, second: int) -> bool:
    """Whether one stack is clearly faster than another: by their pair if there is one, else by their times."""
    for place, other in ((first, second), (second, first)):
        against = table.by_baseline.get(table.columns[other])
        ratio = against.speedups[row][place] if against else None
        if ratio and ratio[3] and ratio[1] is not None and ratio[2] is not None:
            return ratio[1] > 1 if place == first else ratio[2] < 1
    times = [cell.time for place in (first, second) if (cell := table.cells[row][place]) and cell.time]
    high, low = times[0][2], times[1][1]
    return times[0][0] < times[1][0] if high is None or low is None else high < low


def _passes(cells: list[list[Cell | None]], place: int) -> Passes:
    statuses = [cell.status for row in cells if (cell := row[place])]
    ok, wrong = statuses.count("ok"), statuses.count("wrong")
    failed = sum(statuses.count(status) for status in FAILED)
    return Passes(ok, wrong, failed, len(statuses) - ok - wrong - failed, len(statuses))
