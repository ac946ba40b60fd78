"""Speedup against accuracy: rows are of recipes alone, and what nothing beats is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.model.record import Figure
from steelyard.report.charts.accuracy import CHARTS, COLUMNS, accuracy_rows
from steelyard.report.web.document import document
from steelyard.store.runs import Header, Run, Seal
from tests.analyze.saved import case, pair, record
from tests.report.charts.drawn import drawn

FORMATS = {"int8wo": (0.5, 42.0), "int4wo-32": (0.4, 22.0), "nf4": (2.0, 20.0)}


def page() -> dict[str, Any]:
    records = [record(case("a"), 1.0), record(case("a", "compile"), 0.9)]
    for name, (ratio, sqnr) in FORMATS.items():
        made = record(case("a", name), ratio)
        made.metrics.update(sqnr=Figure(sqnr, "dB", "higher", n=1), model_bytes=Figure(2.0**20, "B", "lower", n=1))
        records.append(made)
    pairs = [pair(case("a"), case("a", name), ratio, 0.01) for name, (ratio, _) in FORMATS.items()]
    pairs.append(pair(case("a"), case("a", "compile"), 0.9, 0.01))
    known: dict[str, Any] = {"machine_key": "m" * 12, "created": "2026-01-02T03:00:00Z"}
    return document([Run(Path("k3f9"), Header(id="k3f9", **known), tuple(records), tuple(pairs), Seal("", len(records)))])


def test_rows_are_of_recipes_and_the_best_are_marked() -> None:
    rows = {row["recipe"]: row for row in accuracy_rows(page())}
    assert set(rows) == set(FORMATS) and all(set(row) == set(COLUMNS) for row in rows.values())
    assert {name: row["best"] for name, row in rows.items()} == {"int8wo": True, "int4wo-32": True, "nf4": False}
    assert rows["int8wo"]["speedup"] == 2 and rows["int8wo"]["low"] < 2 < rows["int8wo"]["high"]
    assert (rows["nf4"]["sqnr_text"], rows["nf4"]["size_text"]) == ("20.0 dB", "1.00 MiB")


def test_it_can_be_drawn() -> None:
    assert "int8wo" in drawn(CHARTS[0], accuracy_rows(page()))
