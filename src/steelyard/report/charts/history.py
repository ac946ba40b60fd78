"""Charts over time: one series with its changes of level, and PyTorch/XLA's three plots of speedups (histogram, speedup, latest)."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any

from steelyard.model import effects
from steelyard.model.effects import speedup
from steelyard.model.units import with_error
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, GREY, VERMILION, Spec

SERIES = ("kind", "created", "until", "time", "low", "high", "verdict", "run", "commit", "label", "text", "case")
"""`kind` is point (one run), level (the median between two changes, from `created` until `until`), change (a new level from `created` on,
with `verdict` slower or faster) or noise (a stretch of runs that scatter far more than the others); times in seconds; `label` is the
text in the chart, `text` the time with its unit."""
QUANTILES = ("created", "run", "column", "q10", "q25", "q50", "q75", "q90", "n", "least", "most", "over", "text")
"""Quantiles of the speedups of one stack (`column`) in each run, over `n` models; `least` and `most` are the ends of the axis, the
same in all rows, so that several stacks can be drawn on one scale; `over` names the baseline."""
MEANS = ("created", "run", "column", "mean", "n", "partial", "least", "most", "over", "text")
"""The geometric mean of a stack's speedups in each run, over the `n` models that all stacks have; `partial` if a run has far fewer
models than its neighbours, so that its mean says nothing about a trend."""
LATEST = ("column", "rank", "row", "speedup", "low", "high", "over", "text")
"""Speedups of the newest run, sorted within each stack: `rank` counts from 1, the slowest."""

MARGIN, LACKING = 1.03, 0.8
ROOM = 420
"""The least width in pixels of a chart that shows the commits of a change."""

REACH = 3
"""How many runs on either side a run is compared with, to find restless ones."""
FAR, WIDE, NOISE, FEWEST, APART = 4.5, 3.0, 0.002, 3, 3
"""A run is restless if it is FAR times as far from its neighbours as usual in its series, or has an interval WIDE times as wide, and by
more than NOISE of its time; FEWEST of them, no more than APART runs from one to the next, are a noisy stretch."""


def _series() -> Chart:
    ticks: Spec = {"title": None, "labelExpr": vega.with_prefix("datum.value", "'s'"), "tickCount": 6}
    up: Spec = {"field": "time", "type": "quantitative", "scale": {"zero": False, "nice": True, "padding": 6}, "axis": ticks}
    across = vega.dates("when")
    verdicts = {"domain": ["slower", "faster"], "range": [VERMILION, BLUE]}
    colour: Spec = {"color": {"field": "verdict", "type": "nominal", "legend": None, "scale": verdicts}}
    words: Spec = {"text": {"field": "label", "type": "nominal"}}
    ends: Spec = {"x": across, "y": {**up, "field": "low"}, "y2": {"field": "high"}}
    tooltip = vega.told(("text", "time per call"), ("run", "run"), ("commit", "commit"), ("label", "when"))
    here, end, level = ({"expr": f"scale('{scale}', datum.{name})"} for scale, name in (("x", "when"), ("x", "end"), ("y", "time")))
    around = [{"expr": f"{place['expr']} {aside}"} for place, aside in ((here, "- 5"), (end, "+ 5"))]
    stretch: Spec = {"x": {"value": here}, "x2": {"value": end}, "y": {"value": level}}
    late = "scale('x', datum.when) > width / 2"
    aside: Spec = {
        "x": here,
        "align": {"expr": f"{late} ? 'right' : 'left'"},
        "dx": {"expr": f"{late} ? -5 : 5"},
        "y": 2,
        "baseline": "top",
    }
    ends_at = "indexof(datum.label, ']') + 1"
    short = f"({ends_at} ? slice(datum.label, 0, {ends_at}) : split(datum.label, ', ')[0])"
    size = {"expr": f"width < {ROOM} ? {short} : datum.label"}
    below: Spec = {"x": here, "align": "left", "dx": 4, "y": {"expr": "height - 3"}, "baseline": "bottom"}
    point = "datum.kind === 'point'"
    layers = [
        vega.layer("rect", {}, "datum.kind === 'noise'", color=GREY, opacity=0.16, x=around[0], x2=around[1], y=0, y2="height"),
        vega.layer("text", words, "datum.kind === 'noise'", fontSize=11, **below),
        vega.layer("area", ends, f"{point} && isValid(datum.low) && isValid(datum.high)", color=BLUE, opacity=0.2, line=False),
        vega.layer("line", {"x": across, "y": up}, point, color=BLUE, strokeWidth=1, opacity=0.65),
        vega.layer("rule", stretch, "datum.kind === 'level'", color=GREY, strokeWidth=2.5),
        vega.layer("rule", {**colour, "x": {"value": here}}, "datum.kind === 'change'", strokeWidth=1.5, strokeDash=[4, 3]),
        vega.layer("point", {"x": across, "y": up, "tooltip": tooltip}, point, color=BLUE, size=26, **DOT),
        vega.layer("text", colour, "datum.kind === 'change'", fontSize=11, fontWeight=600, text=size, **aside),
        *vega.captions("'time per call'"),
    ]
    spec = vega.framed(layers, 300, transform=[vega.moment("created", "when"), vega.moment("until", "end")])
    reading = (
        "Each dot is one run's median with its 95 % interval as the band; a dashed line is a change of level with its size and the commits "
        "between which it happened, thick lines are the levels, and grey areas are nights that scatter more than usual."
    )
    return Chart("history-series", "Time of one case over all runs", reading, spec, SERIES, history_series_rows)


GAPS: Spec = {"invalid": "break-paths-show-path-domains"}
DOT: Spec = {"filled": True, "opacity": 1, "cursor": "pointer"}


def _over(what: str, across: str = "") -> list[Spec]:
    return vega.captions(f"'{what} over the oldest ' + {vega.first('over')}", across)


def _quantiles() -> Chart:
    across, middle = vega.dates("when"), vega.speedups("q50")
    tooltip = vega.told(("column", "stack"), ("text", "speedups"), ("n", "models"), ("run", "run"))
    layers = [
        vega.layer("rule", {"y": vega.speedups("least"), "y2": {"field": "most"}}, opacity=0),
        vega.even(),
        vega.layer("area", {"x": across, "y": vega.speedups("q10"), "y2": {"field": "q90"}}, color=BLUE, opacity=0.16, line=False),
        vega.layer("area", {"x": across, "y": vega.speedups("q25"), "y2": {"field": "q75"}}, color=BLUE, opacity=0.28, line=False),
        vega.layer("line", {"x": across, "y": middle}, color=BLUE, strokeWidth=2),
        vega.layer("point", {"x": across, "y": middle, "tooltip": tooltip}, color=BLUE, size=24, **DOT),
        *_over("speedup"),
    ]
    spec = vega.framed(layers, 200, transform=[vega.moment("created", "when")])
    reading = (
        "The line is the median model's speedup in each run over the baseline's oldest time; half of the models are in the dark band and "
        "eight of ten in the light one."
    )
    return Chart("history-quantiles", "Histogram: spread of speedups over time", reading, spec, QUANTILES, history_quantiles_rows)


def _means() -> Chart:
    across, up, name = vega.dates("when"), vega.speedups("mean"), vega.by_name("column")
    steady: Spec = {"x": across, "y": vega.speedups("steady"), "stroke": name}
    fading: Spec = {"fillOpacity": {"expr": "datum.partial ? 0.35 : 1"}}
    tooltip = vega.told(("column", "stack"), ("text", "geometric mean"), ("n", "models"), ("run", "run"))
    layers = [
        vega.layer("rule", {"y": vega.speedups("least"), "y2": {"field": "most"}}, opacity=0),
        vega.even(),
        vega.layer("line", steady, strokeWidth=1.75, **GAPS),
        vega.layer("point", {"x": across, "y": up, "color": name, "shape": name, "tooltip": tooltip}, size=30, **fading, **DOT),
        *_over("geometric mean"),
    ]
    whole = {"calculate": "datum.partial ? null : datum.mean", "as": "steady"}
    spec = vega.framed(layers, 240, transform=[vega.moment("created", "when"), whole])
    reading = (
        "Each line is a stack's geometric mean speedup over the models that all stacks have in that run; above 1× it is faster than the "
        "baseline was in its oldest run, and a pale point off the line is a run that lacks many models."
    )
    return Chart("history-speedup", "Speedup: geometric mean over time", reading, spec, MEANS, history_speedup_rows)


def _latest() -> Chart:
    whole = "datum.value % 1 ? '' : format(datum.value, 'd')"
    axis: Spec = {"title": None, "labelExpr": whole, "ticks": False, "labelPadding": 8, "grid": False}
    scale: Spec = {"nice": False, "zero": False, "padding": 12}
    across: Spec = {"field": "rank", "type": "quantitative", "scale": scale, "axis": axis}
    up, name = vega.speedups("speedup"), vega.by_name("column")
    tooltip = vega.told(("row", "model"), ("column", "stack"), ("text", "speedup"))
    ends: Spec = {"x": across, "y": {**up, "field": "from"}, "y2": {"field": "to"}, "fill": name}
    layers = [
        vega.even(),
        vega.layer("line", {"x": across, "y": up, "stroke": name}, strokeWidth=1, opacity=0.6),
        vega.layer("bar", ends, width=1.5),
        vega.layer("point", {"x": across, "y": up, "color": name, "shape": name, "tooltip": tooltip}, size=40, **DOT),
        *_over("speedup", "'models, sorted within each stack'"),
    ]
    reading = (
        "Each point is one model of the newest run with its 95 % interval, slowest to the left; where a line crosses 1× its stack becomes "
        "faster than the baseline's oldest time."
    )
    spec = vega.framed(layers, 240, transform=vega.ends_of("speedup"))
    return Chart("history-latest", "Latest: all speedups of the newest run", reading, spec, LATEST, history_latest_rows)


def history_series_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """One series: that of the case, or the one that changed most."""
    found = (document["history"] or {"series": []})["series"]
    chosen = [series for series in found if case in (None, series["case"]) and series["points"]]
    return series_rows(max(chosen, key=_largest_change)) if chosen else []


def _largest_change(series: dict[str, Any]) -> float:
    return max((abs(math.log(change["ratio"])) for change in series["changes"]), default=0.0)


def series_rows(series: dict[str, Any]) -> Rows:
    """Points, levels, changes and noisy stretches of a series."""
    points, changes, empty = series["points"], series["changes"], {**dict.fromkeys(SERIES), "case": series["case"]}
    rows = [
        {**empty, "kind": "point", "created": created, "time": time, "low": low, "high": high, "run": f"{run}/{number}", "commit": commit,
         "label": created, "text": with_error(time, low, high, "s")}
        for run, number, created, time, low, high, commit, *_ in points
    ]  # fmt: skip
    edges = [0, *(change["index"] for change in changes), len(points)]
    for start, stop in pairwise(edges):
        if changes and stop > start:
            level = median(point[3] for point in points[start:stop])
            rows.append({**empty, "kind": "level", "created": points[start][2], "until": points[stop - 1][2], "time": level})
    for change in changes:
        words = f"{effects.change(change['ratio'], change['low'], change['high'])}{_commits(change)}"
        verdict = "slower" if change["ratio"] > 1 else "faster"
        rows.append({**empty, "kind": "change", "created": change["created"], "verdict": verdict, "run": change["run"], "label": words})
    for start, stop in noisy_stretches(points):
        rows.append({**empty, "kind": "noise", "created": points[start][2], "until": points[stop][2], "label": "noisy"})
    return rows


def _commits(change: dict[str, Any]) -> str:
    old, new = change["last"][:9], change["first"][:9]
    return f", {old}..{new}" if old and new and old != new else f", at {new or old}" if new or old else ""


def noisy_stretches(points: list[Any]) -> list[tuple[int, int]]:
    """First and last index of each stretch whose runs scatter, within themselves or from one to the next, far more than is usual here."""
    if len(points) < 2 * REACH:
        return []
    logs = [math.log(point[3]) for point in points]
    away = [abs(value - median(logs[max(0, at - REACH) : at + REACH + 1])) for at, value in enumerate(logs)]
    wide = [(point[5] - point[4]) / 2 / point[3] if point[4] is not None and point[5] is not None else 0.0 for point in points]
    far, broad = max(FAR * median(away), NOISE), max(WIDE * median(wide), NOISE)
    found: list[list[int]] = []
    for at in (at for at in range(len(points)) if away[at] > far or wide[at] > broad):
        if found and at - found[-1][-1] <= APART:
            found[-1].append(at)
        else:
            found.append([at])
    return [(restless[0], restless[-1]) for restless in found if len(restless) >= FEWEST]


def history_quantiles_rows(document: dict[str, Any], column: str | None = None) -> Rows:
    """The spread of one stack's speedups, by default the first beside the baseline."""
    trends = (document["history"] or {}).get("trends")
    if not trends:
        return []
    chosen = column or next((name for name in trends["columns"] if name != trends["baseline"]), None)
    lacking = partial_runs(trends)
    kept = [point for point in trends["points"] if point["q50"] and (point["column"], point["run"]) not in lacking]
    common = {**_axis([point["q10"] for point in kept], [point["q90"] for point in kept]), "over": trends["baseline"]}
    return [{**_only(QUANTILES, point), **common, "text": _spread(point)} for point in kept if point["column"] == chosen]


def _axis(lows: list[float], highs: list[float]) -> dict[str, float]:
    """The ends of the axis, with some room, so that a negligible trend does not fill the chart."""
    return {"least": min(lows, default=1.0) / MARGIN, "most": max(highs, default=1.0) * MARGIN}


def _spread(point: dict[str, Any]) -> str:
    return f"{speedup(point['q50'])} (8 of 10 between {speedup(point['q10'])} and {speedup(point['q90'])})"


def history_speedup_rows(document: dict[str, Any]) -> Rows:
    """Every stack's geometric mean in every run, if there is a stack besides the baseline.

    The baseline's own line then shows how far it has moved from its oldest time.
    """
    trends = (document["history"] or {}).get("trends")
    if not trends:
        return []
    kept = [point for point in trends["points"] if point["mean"]] if len(trends["columns"]) > 1 else []
    means = [point["mean"] for point in kept]
    common = {**_axis(means, means), "over": trends["baseline"]}
    lacking = partial_runs(trends)
    return [
        {**_only(MEANS, point), **common, "partial": (point["column"], point["run"]) in lacking, "text": speedup(point["mean"])}
        for point in kept
    ]


def partial_runs(trends: dict[str, Any]) -> set[tuple[str, str]]:
    """Stack and run of each point that has far fewer models than the runs around it, as after a night that was cut short."""
    found = set()
    for column in trends["columns"]:
        mine = [point for point in trends["points"] if point["column"] == column and point["n"]]
        sizes = [point["n"] for point in mine]
        for at, point in enumerate(mine):
            if point["n"] < LACKING * median(sizes[max(0, at - REACH) : at + REACH + 1]):
                found.add((column, point["run"]))
    return found


def history_latest_rows(document: dict[str, Any]) -> Rows:
    """The newest run's speedups, sorted within each stack."""
    trends = (document["history"] or {}).get("trends")
    found: Rows = []
    if not trends:
        return found
    for column in trends["columns"] if len(trends["columns"]) > 1 else ():
        mine = [item for item in trends["latest"] if item["column"] == column and item["speedup"]]
        for rank, item in enumerate(sorted(mine, key=lambda item: float(item["speedup"])), 1):
            text = speedup(item["speedup"], item["low"], item["high"])
            found.append({**_only(LATEST, item), "rank": rank, "over": trends["baseline"], "text": text})
    return found


def _only(columns: tuple[str, ...], item: dict[str, Any]) -> dict[str, Any]:
    return {name: item.get(name) for name in columns}


CHARTS = (_series(), _quantiles(), _means(), _latest())
