"""The replay of a trace on a case's page: what it covers, what its calls took, and its timeline with the recorded one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steelyard.model.record import Record
from steelyard.report.cells import clean
from steelyard.report.replay import OPERATORS, REPLAY, coverage_rows
from steelyard.report.web.samples import Sidecar

MOST_ROWS, MOST_DRAWN = 100, 1500
"""The most calls in the table, and in the timeline; only the first are shown."""


def replay_entry(record: Record, sidecar: Sidecar) -> dict[str, Any] | None:
    """The part of a page about a replay; None for any other case."""
    if not isinstance(record.effective.get(REPLAY), Mapping):
        return None
    return {
        "facts": [list(row) for row in coverage_rows(record.effective) if row[1]],
        "calls": _calls(record),
        "timeline": _drawn(record, sidecar),
    }


def _calls(record: Record) -> list[dict[str, Any]]:
    rows = record.effective.get(OPERATORS)
    known = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [
        {
            "operator": clean(str(row.get("operator", ""))), "shapes": clean(str(row.get("shapes", ""))),
            **{name: _number(row.get(name)) for name in ("calls", "time", "recorded")},
        }
        for row in known[:MOST_ROWS]
    ]  # fmt: skip


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _drawn(record: Record, sidecar: Sidecar) -> dict[str, Any] | None:
    """Starts and times of calls, replayed and recorded; None if the series do not match."""
    took, numbers = sidecar.array(record, "replay_time"), sidecar.array(record, "replay_name")
    names = record.effective.get("replay_names")
    if took is None or numbers is None or len(took) != len(numbers) or not isinstance(names, list) or not len(took):
        return None
    if numbers.min() < 0 or numbers.max() >= len(names) or not np.isfinite(took).all():
        return None
    starts = np.concatenate([[0.0], np.cumsum(took)[:-1]])
    begun, lasted = sidecar.array(record, "recorded_start"), sidecar.array(record, "recorded_time")
    recorded = None
    if begun is not None and lasted is not None and len(begun) == len(lasted) == len(took):
        recorded = [begun[:MOST_DRAWN].tolist(), lasted[:MOST_DRAWN].tolist()]
    return {
        "name": [clean(str(names[int(number)])) for number in numbers[:MOST_DRAWN]],
        "replayed": [starts[:MOST_DRAWN].tolist(), took[:MOST_DRAWN].tolist()], "recorded": recorded, "count": len(took),
    }  # fmt: skip
