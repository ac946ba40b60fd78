"""Charts of one case: its samples in the order they were taken, how they are distributed, and where the time of a run went."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import quantiles
from typing import Any

from steelyard.model.units import plain
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, LEGEND, ORANGE, VERMILION, Spec

SAMPLES = ("case", "order", "time", "drawn", "state", "counts", "text", "clock", "clock_unit", "clock_text")
"""`order` counts from 0; `time` is one sample in seconds and `drawn` its place: the edge of the scale if it is beyond it;
`state` is kept, discarded (disturbed) or throttled; `counts` is false for disturbed samples unless too few were undisturbed. Rows of the
clock have `clock` and no time; all rows have its unit."""
BINS = ("case", "least", "most", "number", "share", "text")
"""Of the samples that count, `number` are between `least` and `most` seconds, which is `share` of them."""
TIMES = ("case", "time", "drawn", "text")
"""Samples that count, in seconds, and their places: the edge of the scale for those beyond it."""
PHASES = ("case", "phase", "seconds", "text")
PURPLE = "#CC79A7"
STATES = ["kept", "discarded", "throttled"]
REACH = 8.0
MOST_BINS = 50
BAND = 0.2
"""The share of the height that is only for the clock."""
SHARE: Spec = {"field": "share", "type": "quantitative"}
SHARES: Spec = {**SHARE, "axis": {"title": None, "format": "~%", "tickCount": 4}}
"""A share of the samples, and the axis of such shares."""
SECONDS = vega.with_prefix("datum.value", "'s'")
PHASE_METRICS = {
    "build_time": "build", "compile_time": "compile", "first_call_time": "first call", "warmup_time": "warm-up", "time": "steady, one call",
}  # fmt: skip


def times_axis(field: str, **more: Any) -> Spec:
    """A horizontal or vertical scale of times, labelled with their units."""
    axis = {"title": None, "labelExpr": SECONDS, "tickCount": 6, "labelOverlap": True, "labelFlush": False, "labelSeparation": 8}
    return {"field": field, "type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": axis, **more}


def _dots(across: Spec, top: float = 0.0) -> list[Spec]:
    """Samples with colour and shape by state, and the median of those that count; `top` is the share of the height left free above them."""
    colours = {"domain": STATES, "range": [BLUE, ORANGE, VERMILION]}
    shapes = {"domain": STATES, "range": ["circle", "diamond", "triangle-down"]}
    state: Spec = {"field": "state", "type": "nominal", "legend": LEGEND}
    looks: Spec = {"color": {**state, "scale": colours}, "shape": {**state, "scale": shapes}}
    middle = [
        {"filter": "datum.counts && isValid(datum.time)"},
        {"aggregate": [{"op": "median", "field": "time", "as": "median"}]},
    ]
    tooltip = vega.told(("text", "sample"), ("order", "position"), ("state", "state"))
    scale: Spec = {"zero": False, "nice": True, "range": [{"expr": "height"}, {"expr": f"height * {top}"}]}
    dots: Spec = {"x": across, "y": times_axis("drawn", scale=scale), **looks, "tooltip": tooltip}
    line: Spec = {"type": "rule", "strokeWidth": 1.25, "strokeDash": [5, 3], "tooltip": None}
    return [
        vega.layer("point", dots, "isValid(datum.time)", filled=True, size=22, opacity=0.7),
        {"transform": middle, "mark": line, "encoding": {"y": times_axis("median", scale=scale)}},
    ]


def _order() -> Spec:
    whole = "datum.value === floor(datum.value) ? format(datum.value, 'd') : ''"
    axis = {"title": None, "labelExpr": whole, "tickMinStep": 1, "grid": False, "labelOverlap": True}
    return {"field": "order", "type": "quantitative", "scale": {"nice": False, "zero": False, "padding": 6}, "axis": axis}


def _samples() -> Chart:
    layers = [*_dots(_order()), *vega.captions("'time per call'", "'order of measuring'")]
    reading = (
        "Each dot is one sample in the order it was taken: a level cloud is steady, a slope is drift, a step is a change of the machine; "
        "orange diamonds were disturbed and do not count, the dashed line is the median."
    )
    return Chart("case-samples", "Samples in order", reading, vega.framed(layers, 260), SAMPLES, case_samples_rows)


def _clocks() -> Chart:
    words = vega.with_prefix("datum.value", vega.first("clock_unit"))
    axis = {"title": None, "orient": "right", "grid": False, "tickCount": 2, "labelExpr": words}
    scale = {"zero": False, "nice": True, "range": [{"expr": f"height * {BAND}"}, 0]}
    speed: Spec = {"field": "clock", "type": "quantitative", "scale": scale, "axis": axis}
    across = _order()
    tooltip = vega.told(("clock_text", "clock"), ("order", "position"))
    clock: Spec = {"x": across, "y": speed, "tooltip": tooltip}
    line = vega.layer("line", clock, "isValid(datum.clock)", color=PURPLE, strokeWidth=1.75, interpolate="step-after")
    right: Spec = {"x": "width", "y": -9, "align": "right", "baseline": "bottom", "text": "clock", "tooltip": None}
    label: Spec = {"data": {"values": [{}]}, "mark": {"type": "text", **right}}
    samples = [*_dots(across, top=BAND + 0.06), *vega.captions("'time per call'", "'order of measuring'")]
    spec = vega.framed([{"layer": samples}, {"layer": [line, label]}], 330)
    spec["resolve"] = {"scale": {"y": "independent"}}
    reading = (
        "Each dot is one sample in the order it was taken, and above it the clock at that time: times that rise where the clock falls "
        "are throttling, not the code; orange diamonds were disturbed and do not count, the dashed line is the median."
    )
    return Chart("case-clocks", "Samples in order, with the clock over them", reading, spec, SAMPLES, case_clocks_rows)


def _distribution() -> Chart:
    across: Spec = {**times_axis("least"), "bin": {"binned": True}}
    tooltip = [*vega.told(("text", "time per call"), ("number", "samples")), {**SHARE, "format": ".1%"}]
    layers = [
        vega.layer("bar", {"x": across, "x2": {"field": "most"}, "y": SHARES, "tooltip": tooltip}, color=BLUE, opacity=0.8, binSpacing=1),
        *vega.captions("'share of samples'", "'time per call'"),
    ]
    reading = (
        "How often each time occurred: one narrow hill is steady, two hills are two ways of running, a long right end is disturbance; "
        "samples far beyond the others are counted at the edge."
    )
    return Chart("case-distribution", "Distribution", reading, vega.framed(layers, 220), BINS, case_distribution_rows)


def _cumulative() -> Chart:
    ranked = [{"window": [{"op": "cume_dist", "as": "share"}], "sort": [{"field": "drawn"}]}]
    tooltip = [*vega.told(("text", "time per call")), {**SHARE, "title": "at most that", "format": ".1%"}]
    across = times_axis("drawn")
    layers = [
        {"transform": ranked, **vega.layer("line", {"x": across, "y": SHARES}, color=BLUE, interpolate="step-after", strokeWidth=1.75)},
        {"transform": ranked, **vega.layer("point", {"x": across, "y": SHARES, "tooltip": tooltip}, opacity=0, size=60)},
        *vega.captions("'share of samples at most that long'", "'time per call'"),
    ]
    reading = (
        "The share of samples up to each time: read across from 50 % for the median, from 99 % for the slow tail; samples far "
        "beyond the others are drawn at the edge."
    )
    return Chart("case-cumulative", "Cumulative distribution", reading, vega.framed(layers, 220), TIMES, case_cumulative_rows)


def _phases() -> Chart:
    axis = {"title": None, "labelExpr": SECONDS, "tickCount": 5, "labelOverlap": True}
    across: Spec = {"field": "seconds", "type": "quantitative", "axis": axis}
    down: Spec = {"field": "phase", "type": "nominal", "sort": None, "axis": vega.names()}
    tooltip = vega.told(("phase", "phase"), ("text", "took"))
    layers = [
        vega.layer("bar", {"y": down, "x": across, "tooltip": tooltip}, color=BLUE, opacity=0.8, height={"band": 0.62}),
        vega.layer("text", {"y": down, "text": {"field": "text", "type": "nominal"}}, x={"expr": "width"}, align="left", dx=8),
    ]
    spec = vega.framed(layers, {"step": 28}, padding=2)
    reading = "How long each phase took, first to last; the other figures are about the steady call, all other phases happen once."
    return Chart("case-phases", "Phases", reading, spec, PHASES, case_phases_rows)


def case_samples_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """Every sample in the document, and the clock if it was read."""
    found = _with_samples(document, case)
    return [] if found is None else [*_sample_rows(found), *_clock_rows(found)]


def case_clocks_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The samples and the clock; empty if there is no clock."""
    rows = case_samples_rows(document, case)
    return rows if any(row["clock"] is not None for row in rows) else []


def case_cumulative_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The samples that count; those beyond the scale are drawn at its edge, since they would squeeze all others into one bar."""
    found = _with_samples(document, case)
    rows = [] if found is None else _sample_rows(found)
    return [{name: row[name] for name in TIMES} for row in rows if row["counts"]]


def case_distribution_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The samples that count in bins of equal width; more samples get more bins."""
    rows = case_cumulative_rows(document, case)
    times = [row["drawn"] for row in rows]
    if not times or max(times) == min(times):
        return []
    start, count = min(times), min(MOST_BINS, math.ceil(3 * len(times) ** (1 / 3)))
    width = (max(times) - start) / count
    numbers = Counter(min(count - 1, int((time - start) / width)) for time in times)
    edges = [start + width * at for at in range(count + 1)]
    return [
        {
            "case": rows[0]["case"],
            "least": low,
            "most": high,
            "number": numbers[at],
            "share": numbers[at] / len(times),
            "text": f"{plain(low, 's', 4)} to {plain(high, 's', 4)}",
        }
        for at, (low, high) in enumerate(pairwise(edges))
    ]


def case_phases_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """Build, compile, first call, warm-up and one steady call, as far as they are known."""
    found = _chosen(document, case)
    if found is None:
        return []
    warmup = found["effective"].get("warmup_time")
    values = {name: figure[0] for name, figure in found["metrics"].items()} | ({"warmup_time": warmup} if _is_number(warmup) else {})
    return [
        {"case": found["id"], "phase": phase, "seconds": values[name], "text": plain(values[name], "s")}
        for name, phase in PHASE_METRICS.items()
        if _is_number(values.get(name))
    ]


def _sample_rows(case: dict[str, Any]) -> Rows:
    samples = case["samples"]
    times = samples["time"]
    orders = samples["index"] or range(len(times))
    discarded, throttled = samples["discarded"] or [0] * len(times), samples["throttled"] or [0] * len(times)
    states = ["discarded" if bad else "throttled" if slow else "kept" for bad, slow in zip(discarded, throttled, strict=True)]
    counts = [bool(samples.get("kept")) or state != "discarded" for state in states]
    low, high = scale_ends([time for time, counted in zip(times, counts, strict=True) if counted] or times)
    empty = {**dict.fromkeys(SAMPLES), "case": case["id"], "clock_unit": (samples["clock"] or {}).get("unit")}
    own = [{"time": time, "drawn": min(max(time, low), high), "text": plain(time, samples["unit"], 4)} for time in times]
    told = [{"order": order, "state": state, "counts": counted} for order, state, counted in zip(orders, states, counts, strict=True)]
    return [{**empty, **row, **more} for row, more in zip(own, told, strict=True)]


def _clock_rows(case: dict[str, Any]) -> Rows:
    clock = case["samples"]["clock"]
    if not clock:
        return []
    empty, unit = {**dict.fromkeys(SAMPLES), "case": case["id"]}, clock["unit"]
    return [
        {**empty, "order": order, "clock": value, "clock_unit": unit, "clock_text": plain(value, unit)}
        for order, value in zip(clock["index"], clock["values"], strict=True)
    ]


def scale_ends(times: list[float]) -> tuple[float, float]:
    """The ends of the axis, which leave out a few far samples that would hide the rest."""
    if len(times) < 2:
        return min(times), max(times)
    lower, _, upper = quantiles(times, n=4, method="inclusive")
    reach = REACH * max(upper - lower, 1e-3 * upper)
    return max(min(times), lower - reach), min(max(times), upper + reach)


def _with_samples(document: dict[str, Any], case: str | None) -> dict[str, Any] | None:
    return next((item for item in document["cases"] if item["samples"] and item["samples"]["time"] and case in (None, item["id"])), None)


def _chosen(document: dict[str, Any], case: str | None) -> dict[str, Any] | None:
    return next((item for item in document["cases"] if case == item["id"] or (case is None and item["status"] == "ok")), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


CHARTS = (_samples(), _clocks(), _distribution(), _cumulative(), _phases())
