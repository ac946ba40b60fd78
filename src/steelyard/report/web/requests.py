"""The requests of a page: when the tokens of a typical request came, and how times to the first token and between tokens are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.analyze.stacks import PlacedRecord, Words, grid
from steelyard.measuring.stats import Floats
from steelyard.model.parts import TOLD, generates
from steelyard.model.record import Record
from steelyard.report.cells import clean
from steelyard.report.web.samples import SECONDS, Sidecar
from steelyard.store.runs import Run

MOST_VALUES, MOST_OF_CASE, LEAST_OF_CASE = 60_000, 256, 16
"""The most raw times of all cases together, and of each part of one case."""
MOST_ROWS, MOST_TOKENS, MOST_TIMELINES = 8, 1024, 200
"""The most rows of a batch, tokens of a row, and cases that are kept in timelines."""


def requests_part(seen: Sequence[PlacedRecord], runs: Sequence[Run], told: Words) -> dict[str, Any] | None:
    """Every point of a generation workload with its variants; None if there is none.

    `ttft` and `itl` are sorted raw times in seconds, evenly thinned if there are more than fit; `n` says how many there are. `tokens`
    are the times at which the tokens of the request of median length came, since its start: a list for each row of its batch that was
    timed separately. `end` is when that request ended.
    """
    known = [item for item in seen if item.record.status == "ok" and generates(item.record.metrics)]
    if not known:
        return None
    laid = grid({item.record.id: item.record.case for item in known}, told)
    one_backend = len({column.partition("/")[0] for column in laid.columns}) == 1
    most = min(MOST_OF_CASE, max(LEAST_OF_CASE, MOST_VALUES // (len(TOLD) * len(known))))
    sidecars = [Sidecar.of(run) for run in runs]
    points: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(known):
        row, column = laid.place[item.record.id]
        line = clean(column.partition("/")[2] if one_backend else column)
        entry = {"case": item.record.id, "line": line, **_times(item.record, sidecars[item.run], most)}
        if number < MOST_TIMELINES:
            entry |= _timeline(item.record, sidecars[item.run])
        workload = clean(item.record.case.get("workload") or "")
        points.setdefault(row, {"name": clean(laid.names[row]), "workload": workload, "cases": []})["cases"].append(entry)
    return {"points": list(points.values()), "roofline": []}


def _times(record: Record, sidecar: Sidecar, most: int) -> dict[str, Any]:
    found: dict[str, Any] = {"n": {}}
    for name in TOLD:
        values = _series(record, sidecar, name)
        ordered = np.sort(values[np.isfinite(values)]) if values is not None else np.empty(0)
        found["n"][name], found[name] = len(ordered), [float(ordered[rank]) for rank in ranks(len(ordered), most)]
    return found


def ranks(count: int, most: int) -> list[int]:
    """Indices to keep of an ordered list: all, or `most` at even distances including the first and the last."""
    return list(range(count)) if count <= most else [place * (count - 1) // (most - 1) for place in range(most)]


def _series(record: Record, sidecar: Sidecar, name: str) -> Floats | None:
    series = next((item for item in record.samples if item.name == f"request_{name}" and item.unit in SECONDS), None)
    values = sidecar.array(record, series.name) if series else None
    return None if series is None or values is None else values * SECONDS[series.unit]


def _timeline(record: Record, sidecar: Sidecar) -> Mapping[str, Any]:
    """The timeline of the request of median length; empty if the series do not match."""
    times, first, gaps = (_series(record, sidecar, name) for name in ("time", *TOLD))
    empty: dict[str, Any] = {"tokens": [], "end": None}
    if times is None or first is None or not len(times) or len(first) % len(times):
        return empty
    gaps = np.empty(0) if gaps is None else gaps
    if not len(first) or len(gaps) % len(first) or not all(np.isfinite(values).all() for values in (times, first, gaps)):
        return empty
    place = int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])
    rows, each = len(first) // len(times), len(gaps) // len(first)
    tokens = []
    for row in range(place * rows, place * rows + min(rows, MOST_ROWS)):
        came = np.cumsum(np.concatenate(([first[row]], gaps[row * each : (row + 1) * each])))
        tokens.append([float(came[rank]) for rank in ranks(len(came), MOST_TOKENS)])
    return {"tokens": tokens, "end": float(times[place])}
