"""A replay beside its recording: when each call began and how long it took, in both."""

from __future__ import annotations

from typing import Any

from steelyard.model.units import plain
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.case import times_axis
from steelyard.report.charts.vega import Spec

TIMELINE = ("case", "track", "kind", "start", "end", "text")
"""`track` is recorded or replayed; `kind` is the operator, or `others` if it does not take long; times are in seconds from the first."""
MOST_KINDS, MUCH_LONGER = 6, 3
"""The most kinds with their own colour, since there are seven colours and `others` needs one; and a replay gets its own chart if the
recording took more than this many times as long."""


def _bars() -> Spec:
    across: Spec = times_axis("start", scale={"zero": True, "nice": True})
    down: Spec = {"field": "track", "type": "nominal", "sort": None, "axis": vega.names()}
    tooltip = vega.told(("text", "call"), ("track", "of"))
    bars: Spec = {"y": down, "x": across, "x2": {"field": "end"}, "fill": vega.by_name("kind"), "tooltip": tooltip}
    layers = [vega.layer("bar", bars, height={"band": 0.7}), vega.captions("''", "'time since the first call'")[1]]
    return vega.framed(layers, {"step": 44})


def _timeline() -> Chart:
    reading = (
        "Each bar is one call, coloured by the kinds of operators that take longest here; the calls of the replay "
        "follow each other immediately, and gaps in the recording are Python, autograd and waiting."
    )
    return Chart("replay-timeline", "Recorded and replayed", reading, _bars(), TIMELINE, timeline_rows)


def _alone() -> Chart:
    reading = "The replay's calls again on their own axis, because the recording took much longer."
    return Chart("replay-alone", "The replay alone", reading, _bars(), TIMELINE, alone_rows)


def timeline_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The calls of a case that is a replay, with both times if it has both."""
    found = next((item for item in document["cases"] if item.get("replay") and case in (item["id"], None)), None)
    drawn = found["replay"]["timeline"] if found else None
    if found is None or drawn is None:
        return []
    spent: dict[str, float] = {}
    for name, took in zip(drawn["name"], drawn["replayed"][1], strict=True):
        spent[name] = spent.get(name, 0.0) + took
    largest = sorted(spent, key=lambda name: -spent[name])[:MOST_KINDS]
    rows = []
    for track in ("recorded", "replayed"):
        starts, took = drawn[track] or ([], [])
        for name, start, lasted in zip(drawn["name"], starts, took, strict=False):
            text = f"{name}, {plain(lasted, 's')}"
            kind = name if name in largest else "others"
            rows.append({"case": found["id"], "track": track, "kind": kind, "start": start, "end": start + lasted, "text": text})
    return sorted(rows, key=lambda row: row["kind"] == "others")


def alone_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The calls of a replay that would be hard to see beside its much longer recording; empty for other replays."""
    rows = timeline_rows(document, case)
    ends = {track: max((row["end"] for row in rows if row["track"] == track), default=0.0) for track in ("recorded", "replayed")}
    return [row for row in rows if row["track"] == "replayed"] if ends["recorded"] > MUCH_LONGER * ends["replayed"] else []


CHARTS = (_timeline(), _alone())
