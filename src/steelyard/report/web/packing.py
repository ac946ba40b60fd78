"""A large document in fewer bytes: what thousands of cases have in common is written once, and nothing is lost.

A long list of tables becomes a table of columns, and a column says how it is to be read:

    {"v": x}                    x everywhere
    {"t": [x, y], "i": [0, 1]}  one of a few, by place
    {"k": [4, 7]}               the ids of these cases
    {"w": ["a", "b"]}           the row's own id between these two
    {"n": 2, "c": {…}}          tables again; `o` names those that are null
    {"a": [x, y]}               the values themselves

`p` names the rows that have the key at all, where not all do. `js/00-boxes.js` is the other half.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.report.web.plain import Document

LARGE = 500
SHARE = 4
PROBE = 64
Table = dict[str, Any]


def pack(document: Document) -> Document:
    """The document as a page holds it; a small one stays as it is."""
    cases = document["cases"]
    if len(cases) < LARGE:
        return document
    places = {case["id"]: place for place, case in enumerate(cases)}
    made = {**document, "packed": 1, "cases": packed_rows(cases)}
    if made["comparison"]:
        made["comparison"] = {**made["comparison"], "deltas": packed_rows(made["comparison"]["deltas"], places)}
    if made["matrix"]:
        made["matrix"] = {
            **made["matrix"],
            "cells": [[cell and places.get(cell["case"]) for cell in row] for row in made["matrix"]["cells"]],
        }
    if made["sweep"]:
        made["sweep"] = [_sweep(item, places) for item in made["sweep"]]
    if made["roofline"]:
        made["roofline"] = {**made["roofline"], "points": [places[id] for id in made["roofline"]["points"]]}
    return made


def _sweep(item: Table, places: Mapping[str, int]) -> Table:
    """Points as pairs of value and place; whether one is ok its case says."""
    lines = [{**line, "points": [[point["x"], places[point["case"]]] for point in line["points"]]} for line in item["lines"]]
    return {**item, "lines": lines}


def packed_rows(rows: Sequence[Table], places: Mapping[str, int] = {}) -> Table:
    """A list of tables as columns; ids among `places` are told by those."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {"n": len(rows), "c": {key: _column(key, rows, places) for key in keys}}


def _column(key: str, rows: Sequence[Table], places: Mapping[str, int]) -> Table:
    there = [place for place, row in enumerate(rows) if key in row]
    values = [rows[place][key] for place in there]
    partly: Table = {} if len(there) == len(rows) else {"p": there}
    if around := _around_id(values, [rows[place].get("id") for place in there]):
        return {"w": around, **partly}
    if all(value is None or isinstance(value, dict) for value in values) and any(values):
        empty = [place for place, value in enumerate(values) if value is None]
        partly |= {"o": empty} if empty else {}
        return {**packed_rows([value for value in values if value is not None], places), **partly}
    if places and all(isinstance(value, str) and value in places for value in values):
        return {"k": [places[value] for value in values], **partly}
    if len({json.dumps(value) for value in values[:: max(1, len(values) // PROBE)]}) > PROBE // 2:
        return {"a": values, **partly}
    texts = [json.dumps(value) for value in values]
    distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    if len(distinct) == 1:
        return {"v": values[0], **partly}
    if len(distinct) * SHARE <= len(values):
        return {"t": [json.loads(text) for text in distinct], "i": [distinct[text] for text in texts], **partly}
    return {"a": values, **partly}


def _around_id(values: Sequence[Any], ids: Sequence[Any]) -> list[str] | None:
    """What stands before and after the id in all values, where all are made of it."""
    if not ids or not isinstance(ids[0], str) or not isinstance(values[0], str) or not ids[0] or values[0] == ids[0]:
        return None
    before, found, after = values[0].partition(ids[0])
    return [before, after] if found and all(value == f"{before}{id}{after}" for value, id in zip(values, ids, strict=True)) else None
