"""The other half of packing, as `js/00-boxes.js` does it: what a page reads is what was packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steelyard.report.web.packing import Table
from steelyard.report.web.plain import Document


def unpack(document: Document) -> Document:
    """The whole document again, as the page reads it."""
    if not document.get("packed"):
        return document
    made = {name: value for name, value in document.items() if name != "packed"}
    cases = made["cases"] = unpacked_rows(document["cases"], [])
    if made["comparison"]:
        made["comparison"] = {**made["comparison"], "deltas": unpacked_rows(made["comparison"]["deltas"], cases)}
    if made["matrix"]:
        cells = [[None if place is None else _cell(cases[place]) for place in row] for row in made["matrix"]["cells"]]
        made["matrix"] = {**made["matrix"], "cells": cells}
    if made["sweep"]:
        made["sweep"] = [_unsweep(item, cases) for item in made["sweep"]]
    if made["roofline"]:
        made["roofline"] = {**made["roofline"], "points": [cases[place]["id"] for place in made["roofline"]["points"]]}
    return made


def _cell(case: Table) -> Table:
    return {"case": case["id"], "status": case["status"], "time": case["metrics"].get("time")}


def _unsweep(item: Table, cases: Sequence[Table]) -> Table:
    lines = [
        {**line, "points": [{"x": x, "case": cases[place]["id"], "ok": cases[place]["status"] == "ok"} for x, place in line["points"]]}
        for line in item["lines"]
    ]
    return {**item, "lines": lines}


def unpacked_rows(packed: Table, cases: Sequence[Table] = ()) -> list[Table]:
    """The list of tables that was packed."""
    rows: list[Table] = [{} for _ in range(packed["n"])]
    for key, column in packed["c"].items():
        places = column.get("p", range(len(rows)))
        ids = [rows[place].get("id") for place in places] if "w" in column else []
        for place, value in zip(places, _values(column, len(places), cases, ids), strict=True):
            rows[place][key] = value
    return rows


def _values(column: Table, count: int, cases: Sequence[Table], ids: Sequence[Any]) -> list[Any]:
    if "v" in column:
        return [column["v"]] * count
    if "t" in column:
        return [column["t"][place] for place in column["i"]]
    if "k" in column:
        return [cases[place]["id"] for place in column["k"]]
    if "w" in column:
        return [f"{column['w'][0]}{id}{column['w'][1]}" for id in ids]
    if "c" not in column:
        return list(column["a"])
    made: list[Any] = list(unpacked_rows(column, cases))
    for place in column.get("o", ()):
        made.insert(place, None)
    return made
