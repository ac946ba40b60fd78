"""Sides made by hand: runs of cases with given times, hours apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.analyze.compare import RunsSide
from steelyard.model.case import Case
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Run


def case(number: int, variant: str = "eager") -> str:
    return Case("op/a", (("n", number),), variant=variant).id


def record(id: str, seconds: float = 1e-3, half: float = 0.001, status: Any = "ok", **changes: Any) -> Record:
    time = Figure(seconds, "s", "lower", seconds * (1 - half), seconds * (1 + half), 30)
    plain = Case.parse(id).plain() if "@" in id else {"workload": id}
    return Record(id, plain, status, **{"metrics": {"time": time}, **changes})


def run(name: str, records: Sequence[Record], hour: int = 0, **header: Any) -> Run:
    known = {"machine_key": "same", "created": f"2026-01-02T{hour:02d}:00:00Z", **header}
    return Run(Path(name), Header(id=name, **known), tuple(records))


def side(name: str, *times: Mapping[int, float] | Sequence[float], first: int = 0, step: int = 1, **header: Any) -> RunsSide:
    """One run per table of seconds by case number."""
    tables = [dict(enumerate(table)) if not isinstance(table, Mapping) else dict(table) for table in times]
    runs = [
        run(f"{name}{index}", [record(case(number), seconds) for number, seconds in table.items()], first + index * step, **header)
        for index, table in enumerate(tables)
    ]
    return RunsSide(name, tuple(runs))
