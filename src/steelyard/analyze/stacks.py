"""Arranges cases by what they compute and how: the rows and the columns of every table that compares stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError, unknown
from steelyard.model.case import ENV, HERE, IDENTITY, Case
from steelyard.model.record import Figure, Record
from steelyard.model.values import value_text
from steelyard.store.runs import Run

UNSAID = ("mode", "threads", "ranks")
Plain = Mapping[str, Any]
Words = Callable[[Plain], dict[str, str]]
Quad = tuple[float, float | None, float | None, int | None]
"""A figure as pages use it: value, both ends of its interval, and the number of samples."""


@dataclass(frozen=True)
class PlacedRecord:
    """A record and its place: the index of its run, and its number in that run, counted from one."""

    record: Record
    run: int
    number: int


def newest(runs: Sequence[Run]) -> list[PlacedRecord]:
    """The last record of each case among runs sorted oldest first, in the order in which the cases were first seen."""
    found: dict[str, PlacedRecord] = {}
    for place, run in enumerate(runs):
        for number, record in enumerate(run.records, 1):
            found[record.id] = PlacedRecord(record, place, number)
    return list(found.values())


def quad(figure: Figure | None) -> Quad | None:
    """The numbers of a figure; None without one."""
    return None if figure is None else numbers_of(figure)


def numbers_of(figure: Figure) -> Quad:
    """A figure's value, both ends of its interval, and its number of samples."""
    return (figure.value, figure.low, figure.high, figure.n)


def words(case: Plain) -> dict[str, str]:
    """What can differ between cases of a workload besides backend and variant, each as the text to show."""
    params = dict(case.get("params") or {})
    dtype = params.pop("dtype", None)
    found = {key: f"{key}={value_text(value)}" for key, value in params.items()}
    found |= {"dtype": str(dtype)} if dtype is not None else {}
    found |= {"mode": str(case.get("mode", "eval")), "device": str(case.get("device", "cpu"))}
    found |= {key: f"{key}={case.get(key, 1)}" for key in ("threads", "ranks")}
    found[ENV] = f"env={case.get('env') or HERE}"
    return found | {f"flag.{key}": f"{key}={value}" for key, value in (case.get("flags") or {}).items()}


def once(told: Words) -> Words:
    """A function with the results of `told`, each cached by the identity of the case object."""
    known: dict[int, tuple[Plain, dict[str, str]]] = {}

    def remembered(case: Plain) -> dict[str, str]:
        if id(case) not in known:
            known[id(case)] = case, told(case)
        return known[id(case)][1]

    return remembered


def parse(id: str) -> dict[str, Any]:
    """A case as plain data from its id; any other name is taken as a workload."""
    try:
        return Case.parse(id).plain()
    except (UsageError, ValueError):
        return {"workload": id}


@dataclass(frozen=True)
class Grid:
    """The place of every case: `row` and `column` by case id, both in the order in which they were first seen."""

    rows: dict[str, Plain]
    columns: tuple[str, ...]
    place: dict[str, tuple[str, str]]
    names: dict[str, str]
    params: dict[str, str]


def grid(cases: Mapping[str, Plain], told: Words = words) -> Grid:
    """Lay cases out: a row is what is computed, a column is the stack that does it."""
    said = {id: told(case) for id, case in cases.items()}
    columns = stacks(cases, said)
    rows: dict[str, Plain] = {}
    place: dict[str, tuple[str, str]] = {}
    members: dict[str, str] = {}
    for id, case in cases.items():
        key = _row_key(case)
        rows.setdefault(key, case)
        members.setdefault(key, id)
        place[id] = key, columns[id]
    own = {key: {name: text for name, text in said[id].items() if not _is_how(name)} for key, id in members.items()}
    params = {key: " ".join(text for name, text in table.items() if name not in UNSAID) for key, table in own.items()}
    return Grid(rows, tuple(dict.fromkeys(columns.values())), place, _names(rows, own), params)


def stacks(cases: Mapping[str, Plain], said: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, str]:
    """The name of each case's stack: `torch/compile`, with device, environment and flags where these differ between cases."""
    said = said or {id: words(case) for id, case in cases.items()}
    varying = varying_words({name: text for name, text in table.items() if _is_how(name)} for table in said.values())
    found = {}
    for id, case in cases.items():
        rest = [text for name, text in said[id].items() if name != "device" and name in varying]
        device = f":{said[id]['device']}" if "device" in varying and "device" in said[id] else ""
        found[id] = " ".join([f"{case.get('backend') or 'unknown'}/{case.get('variant') or IDENTITY}{device}", *rest])
    return found


def _is_how(name: str) -> bool:
    """Whether a word describes the stack, not the computation."""
    return name in ("device", ENV) or name.startswith("flag.")


def pick(columns: Sequence[str], counts: Mapping[str, int], asked: str | None) -> str:
    """The baseline column: the one given by name or by variant, else eager, else the most complete."""
    if asked:
        variant = [name for name in columns if asked in (name, variant_of(name), name.partition("/")[0], bare(name))]
        if not variant:
            raise unknown("column", asked, columns)
        return asked if asked in columns else max(variant, key=lambda name: (counts.get(name, 0), f"env={HERE}" in name.split()))
    eager = [name for name in columns if variant_of(name) == IDENTITY] or list(columns)
    return max(eager, key=lambda name: counts.get(name, 0))


def bare(column: str) -> str:
    """Only backend and variant of a column's name."""
    return f"{column.partition('/')[0]}/{variant_of(column)}"


def varying_words(tables: Iterable[Mapping[str, str]]) -> set[str]:
    """The names whose words are not the same in all tables, or are missing in some."""
    known = list(tables)
    names = {name for table in known for name in table}
    return {name for name in names if len({table.get(name) for table in known}) > 1}


def variant_of(column: str) -> str:
    """The variant in a column's name, without backend, device, environment and flags."""
    return column.partition("/")[2].partition(" ")[0].partition(":")[0]


def _row_key(case: Plain) -> str:
    params = sorted((str(key), value_text(value)) for key, value in (case.get("params") or {}).items())
    return repr((case.get("workload"), params, case.get("mode"), case.get("threads", 1), case.get("ranks", 1)))


def _names(rows: Mapping[str, Plain], own: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """A name for each row: its workload and what differs between the workload's rows; a number is added if two names are the same."""
    by_workload: dict[str, list[str]] = {}
    for key, case in rows.items():
        by_workload.setdefault(str(case.get("workload", "")), []).append(key)
    names: dict[str, str] = {}
    for workload, keys in by_workload.items():
        varying = varying_words(own[key] for key in keys)
        for key in keys:
            names[key] = " ".join([workload, *(text for name, text in own[key].items() if name in varying)])
    seen: Counter[str] = Counter()
    for key, name in names.items():
        seen[name] += 1
        names[key] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return {key: names[key] for key in rows}
