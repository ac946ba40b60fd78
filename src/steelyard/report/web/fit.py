"""Keeps a page of ten thousand cases small enough to open: the least important parts are left out first, with a note."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from steelyard.report.web.html import zipped
from steelyard.report.web.plain import Document

ROOM = 8_700_000
"""Bytes of a page for its data; the charts, the scripts and the styles take one more megabyte."""
MANY = 1000
IN_BASE64 = 4 / 3
MINOR = ("overhead", "time_q10", "discarded", "time_p50", "power", "host_time")


def fit(document: Document, room: int = ROOM) -> int:
    """Make a large document small enough for a page; return the bytes left for raw samples."""
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
    """How many bytes of a page a document takes, without the charts."""
    own = {name: value for name, value in document.items() if name != "charts"}
    return round(IN_BASE64 * len(zipped(json.dumps(own, ensure_ascii=False, separators=(",", ":")))))


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


STEPS: tuple[tuple[str, Callable[[dict[str, Any]], None]], ...] = (
    ("speedups are given over one stack only", _one_baseline),
    ("the settings of single cases are left out", _no_settings),
    ("minor figures are left out", _few_metrics),
    ("the history is left out", _no_history),
)
