"""The columns of a result table: what is in each cell, and which columns are dropped first if space is short."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rich.cells import cell_len

from steelyard.analyze.matrix import matrix
from steelyard.analyze.stacks import PlacedRecord
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.pair import ALPHA, Delta, Pair, told_from_chance, weigh
from steelyard.model.parts import NAMES, TOKENS, TOLD, generates, is_secondary
from steelyard.model.record import Figure, Record, unweighed
from steelyard.model.units import measured, percent, scale
from steelyard.model.units import plain as quantity
from steelyard.report.cells import COMMAND, aligned, brief, check_mark, clean, cut, delta_text, pad, parts_of, unpaired_text, verified_mark

LONGEST_BASE = 24
RATES = ("bus_bandwidth", "bandwidth", "compute", "item_rate")
OWN = {
    "time",
    "time_q10",
    "time_p50",
    "time_p90",
    "time_p99",
    "build_time",
    "first_call_time",
    "discarded",
    "overhead",
    "roof",
    "predicted_time",
    "peak_memory",
    "sqnr",
    "sqnr_outliers",
    "cosine",
    "max_error",
    "mean_error",
    "model_bytes",
    *RATES,
}
WIDEST_SPAN = 1e4
BASE = "  base"
INTENSE = 8.0
ASKED: Mapping[str, Sequence[str]] = {
    "peak_memory": ("peak_memory", "model_bytes"),
    "compile_time": ("compile_time", "compile_cpu_time", "code_size"),
    "nsys": ("time_to_first_kernel", "kernel_time", "gap"),
}
"""The figures that an option turns on, by the option's name in a record's settings."""
BELOW = 7
"""Rank at which a column is dropped if its content is also printed below the table."""


@dataclass(frozen=True)
class Column:
    """One column: its head, a cell per record, and its rank; the highest rank is dropped first, 0 never."""

    head: str
    cells: Sequence[str]
    align: str = ">"
    rank: int = 0

    @cached_property
    def width(self) -> int:
        """Columns needed for the head and the widest cell; cached, since every row needs it."""
        return max(map(cell_len, (self.head, *self.cells)))

    @cached_property
    def empty(self) -> bool:
        """Whether the column is empty for all records."""
        return not any(self.cells)

    def padded(self, index: int | None = None) -> str:
        """The cell of a record, or the head, as wide as the column."""
        return pad(self.head if index is None else self.cells[index], self.width, self.align)


def taken(columns: Sequence[Column], gap: str) -> int:
    """The width these columns need, each with the gap before it."""
    return sum(len(gap) + column.width for column in columns)


def columns(
    records: Sequence[Record], deltas: Mapping[str, Delta], bases: Mapping[str, str], *, below: bool = False, asked: Collection[str] = ()
) -> list[Column]:  # fmt: skip
    """Every column that has something to show, in reading order; the time is always the first.

    Verdicts that are also printed `below` the table are dropped first; columns that an option `asked` for are never dropped.
    Stacks that were not measured as pairs still have a speedup over the table's baseline, marked as unpaired.
    """

    def told(name: str, words: Callable[[Figure], str]) -> list[str]:
        return [words(record.metrics[name]) if name in record.metrics else "" for record in records]

    def measurements(name: str) -> list[str]:
        return aligned([parts_of(record.metrics.get(name)) for record in records])

    extras, versus = dict.fromkeys(name for record in records for name in record.metrics if _is_extra(name)), versus_head(deltas)
    known, rate = {name for record in records for name in record.metrics}, _rate(records)
    timed = [record.metrics for record in records if "time" in record.metrics]
    requests = bool(timed) and all(map(generates, timed))
    stacks = len({record.case.get("backend") for record in records}) > 1
    apart = unpaired_column(records) if stacks and not deltas else None

    def rank(name: str, usual: int) -> int:
        return 0 if name in asked else usual

    rest = [
        Column("verified", [verified_mark(record) for record in records], "<", 2)
        if stacks
        else Column("", [check_mark(record) for record in records], "<"),
        *(Column(f"{NAMES[name]} ± 95 %", measurements(name), rank=1) for name in TOLD),
        Column(f"{versus}, {percent(1 - ALPHA)}", _versus(records, deltas, bases, several=versus == SEVERAL), "<", BELOW if below else 0),
        *([apart] if apart else []),
        replace(rate, rank=rate.rank + ("sqnr" in known)),
        Column("SQNR", told("sqnr", lambda decibels: f"{decibels.value:.1f} dB"), rank=1),
        Column("weights", told("model_bytes", lambda size: quantity(size.value, size.unit)), rank=2),
        Column("predicted", told("predicted_time", lambda time: quantity(time.value, time.unit)), rank=5),
        Column("peak", told("roof", lambda share: percent(share.value)), rank=4),
        Column("memory", told("peak_memory", lambda size: quantity(size.value, size.unit)), rank=rank("peak_memory", 4)),
        Column("p99", told("time_p99", lambda time: quantity(time.value, time.unit)), rank=rank("time_p99", 5)),
        *(Column(clean(name), measurements(name), rank=rank(name, 6)) for name in extras),
        Column("n", told("time", lambda time: quantity(time.n, "", 1) if time.n else ""), rank=3),
        Column("noise", [noise(record) for record in records], "<", 2),
    ]
    time = f"{NAMES['time'] if requests else 'median'} ± 95 %"
    return [Column(time, measurements("time")), *(column for column in rest if not column.empty)]


SEVERAL = "vs base"
_case = functools.lru_cache(maxsize=2**15)(Case.parse)
"""A parsed case id, cached: the head, the cells and the line above all need it."""


def asked_columns(records: Sequence[Record]) -> set[str]:
    """The metrics that an option of the run turned on; they are shown even on narrow screens."""
    wanted = {name: metrics for name, metrics in ASKED.items() for record in records if record.requested.get(name)}
    found = {metric for metrics in wanted.values() for metric in metrics}
    return found | ({"time_p99"} if any(record.requested.get("sampling") == "calls" for record in records) else set())


def unpaired_column(records: Sequence[Record]) -> Column | None:
    """Each stack's speedup over the baseline of the report's matrix, if both are ok; None if there is no such speedup."""
    placed = [PlacedRecord(record, 0, number) for number, record in enumerate(records, 1)]
    table = matrix(placed, [])
    if table is None:
        return None
    told: dict[str, str] = {}
    base, against = table.columns.index(table.baseline), table.by_baseline[table.baseline]
    for cells, speedups in zip(table.cells, against.speedups, strict=True):
        for place, (cell, speedup) in enumerate(zip(cells, speedups, strict=True)):
            if cell is not None and speedup is not None:
                told[cell.case] = BASE if place == base else unpaired_text(*speedup[:3])
    found = [told.get(record.id, "") for record in records]
    return Column(f"vs {clean(table.baseline)}, unpaired", found, "<", 1) if len(set(told.values()) - {BASE}) else None


def pairs_by_head(pairs: Sequence[Pair], records: Sequence[Record]) -> tuple[dict[str, Delta], dict[str, str]]:
    """The first delta of each head, and a head for each base; pairs with a record that is not ok are left out."""
    kept = sound_pairs(pairs, records)
    deltas = told_from_chance([weigh(pair) for pair in kept])
    return {delta.head: delta for delta in reversed(deltas)}, {pair.base.id: pair.head.id for pair in kept}


def sound_pairs(pairs: Sequence[Pair], records: Sequence[Record]) -> list[Pair]:
    """The pairs whose arms are both ok."""
    fine = {record.id for record in records if record.status == "ok"}
    return [pair for pair in pairs if pair.base.id in fine and pair.head.id in fine]


def told_below(pairs: Sequence[Pair], records: Sequence[Record]) -> bool:
    """Whether every comparison of a run is of requests, whose verdicts are printed below the table."""
    sound = sound_pairs(pairs, records)
    return bool(sound) and all(generates(pair.parts) for pair in sound)


def versus_head(deltas: Mapping[str, Delta]) -> str:
    """`vs eager`, `vs torch/eager`, `vs own eager`: what all bases have in common and their heads do not."""
    bases = {delta.base for delta in deltas.values()}
    if len(bases) == 1 and "@" not in (side := bases.pop()):
        return f"vs {clean(side)}"
    try:
        told = {(_case(delta.base), _case(delta.head)) for delta in deltas.values()}
    except UsageError:
        return SEVERAL
    if any(base.backend != head.backend for base, head in told):
        names = {f"{base.backend}/{base.variant}" for base, _ in told}
        return f"vs {names.pop()}" if len(names) == 1 else SEVERAL
    names = {base.variant for base, head in told if base.variant != head.variant}
    own = "own " if len({base.backend for base, _ in told}) > 1 else ""
    return f"vs {own}{names.pop()}" if len(names) == 1 else SEVERAL


def own_bases(pairs: Sequence[Pair]) -> str:
    """A line that names the bases if every backend has its own, since rows of 1.00× are then not comparable; else empty."""
    try:
        told = [(_case(pair.base.id), _case(pair.head.id)) for pair in pairs]
    except UsageError:
        return ""
    bases = dict.fromkeys(f"{base.backend}/{base.variant}" for base, head in told if base != head)
    backends = {name.partition("/")[0] for name in bases}
    if len(backends) < 2 or any(base.backend != head.backend for base, head in told):
        return ""
    first = next(iter(bases))
    return f"each backend against its own: {', '.join(bases)} · one base for all: --vs {first}"


def _versus(records: Sequence[Record], deltas: Mapping[str, Delta], bases: Mapping[str, str], *, several: bool) -> list[str]:
    """The cell of the effect column: a head's effect, or `base`, with its name if the column's head does not say which it is."""
    found, unmade = [deltas.get(record.id) for record in records], unweighed(records)
    return [
        delta_text(delta) + (base_name(delta) if several else "")
        if delta
        else "✗ not weighed"
        if record.id in unmade
        else BASE
        if record.id in bases
        else ""
        for record, delta in zip(records, found, strict=True)
    ]


def base_name(delta: Delta) -> str:
    """` vs numpy`, ` vs eager`: how the base differs from its head."""
    try:
        base, head = _case(delta.base), _case(delta.head)
    except UsageError:
        return ""
    if base.workload == head.workload == COMMAND:
        return f" vs {cut(brief(delta.base), LONGEST_BASE)}"
    parts = [name for name, other in ((base.backend, head.backend), (base.variant, head.variant)) if name != other]
    return f" vs {clean('/'.join(parts))}" if parts else ""


def noise(record: Record) -> str:
    """`A`, or `C 4.2 %` if some blocks had to be discarded."""
    dropped = record.metrics.get("discarded")
    share = percent(dropped.value) if dropped and dropped.value > 0 else ""
    return " ".join(filter(None, (clean(record.effective.get("noise") or ""), share)))


def _is_extra(name: str) -> bool:
    return not (name in OWN or name in TOLD or is_secondary(name))


def _rate(records: Sequence[Record]) -> Column:
    """A column with one rate per record; the unit is in the head if all share it and are of similar size."""
    found = [_own_rate(record) for record in records]
    figures = [figure for figure in found if figure]
    units = {figure.unit for figure in figures}
    sizes = [abs(figure.value) for figure in figures if figure.value and math.isfinite(figure.value)]
    if len(units) == 1 and sizes and max(sizes) / min(sizes) <= WIDEST_SPAN:
        factor, name = scale(sorted(sizes)[len(sizes) // 2], units.pop())
        return Column(name, aligned([(_scaled(figure, factor), "", "") if figure else None for figure in found]), rank=1)
    told = [parts_of(figure) for figure in found]
    return Column("rate", aligned([parts and (parts[0], "", parts[2]) for parts in told]), "<", 1)


def _own_rate(record: Record) -> Figure | None:
    """The rate that limits the record: compute if there are many operations per byte, else bandwidth, else items; for requests, tokens."""
    if generates(record.metrics):
        return tokens_rate(record)
    moved, computed = record.metrics.get("bandwidth"), record.metrics.get("compute")
    if moved and computed and computed.value >= INTENSE * moved.value:
        return computed
    return next((record.metrics[name] for name in RATES if name in record.metrics), None)


def tokens_rate(record: Record) -> Figure | None:
    """The item rate with the unit tokens per second."""
    rate = record.metrics.get("item_rate")
    return replace(rate, unit=TOKENS) if rate else None


def _scaled(figure: Figure, factor: float) -> str:
    low, high = (None if end is None else end / factor for end in (figure.low, figure.high))
    return measured(figure.value / factor, low, high, "")[0]
