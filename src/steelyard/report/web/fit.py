"""A page of ten thousand cases that still opens: what matters least is left out first, and that is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from steelyard.report.web.packing import packed_rows
from steelyard.report.web.plain import Document

ROOM = 8_700_000
"""Bytes of a page for its data; the charts, the scripts and the styles take one more megabyte."""
MANY, PROBE = 1000, 400
A_SPOT, A_CELL, A_POINT = 14, 6, 120
MINOR = ("overhead", "time_q10", "discarded", "time_p50", "power", "host_time")


def fit(document: Document, room: int = ROOM) -> int:
    """Make a document small enough for a page, where it is large; gives the bytes that are left for raw samples."""
    if len(document["cases"]) < MANY:
        return room
    left = room - weight(document)
    for words, step in STEPS:
        if left >= 0:
            break
        step(document)
        document["warnings"].append(f"too many cases for one page: {words}; everything is in the run's own file")
        left = room - weight(document)
    return max(0, left)


def weight(document: Document) -> int:
    """About how many bytes a packed document takes; long lists are judged by a sample of them."""
    found = _of_rows(document["cases"])
    if comparison := document["comparison"]:
        found += _of_rows(comparison["deltas"]) + _size([comparison["new"], comparison["missing"], comparison["bad"]])
    if matrix := document["matrix"]:
        found += _size([matrix["by_baseline"], matrix["rows"]]) + A_CELL * len(matrix["rows"]) * len(matrix["columns"])
    found += A_SPOT * sum(len(line["points"]) for sweep in document["sweep"] or () for line in sweep["lines"])
    if history := document["history"]:
        found += A_POINT * sum(len(item["points"]) for item in (*history["series"], history["trends"] or {"points": ()}))
    return found + _size([document["runs"], document["environments"]])


def _of_rows(rows: Sequence[dict[str, Any]]) -> int:
    some = rows[:: max(1, len(rows) // PROBE)]
    return round(_size(packed_rows(some)) * len(rows) / len(some)) if some else 0


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _one_baseline(document: Document) -> None:
    if matrix := document["matrix"]:
        matrix["by_baseline"] = {matrix["baseline"]: matrix["by_baseline"][matrix["baseline"]]}


def _no_settings(document: Document) -> None:
    for case in document["cases"]:
        case["effective"] = {}


def _few_metrics(document: Document) -> None:
    for case in document["cases"]:
        case["metrics"] = {name: figure for name, figure in case["metrics"].items() if name not in MINOR}


def _no_history(document: Document) -> None:
    document["history"] = None


STEPS: tuple[tuple[str, Callable[[Document], None]], ...] = (
    ("speedups are given over one stack only", _one_baseline),
    ("the settings of single cases are left out", _no_settings),
    ("minor figures are left out", _few_metrics),
    ("the history is left out", _no_history),
)
