"""Charts of two sides case by case: every ratio with its interval, and all values before against after."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from steelyard.model.units import with_error
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, GREY, LEGEND, VERMILION, Spec

FOREST = ("case", "label", "tail", "ratio", "low", "high", "margin_low", "margin_high", "verdict", "text", "before", "after")
"""`ratio` is head over base with its interval; between the margins a change is too small to matter; `text` is the change in words,
`before` and `after` are texts with their units. Labels are unique, and `tail` is their common ending; rows are drawn in their
order, largest effect first."""
SCATTER = ("case", "label", "before", "after", "verdict", "ratio", "text", "before_text", "after_text", "unit")
"""`before` and `after` are values of the metric in `unit`; `before_text` and `after_text` have their intervals too."""
VERDICTS = ["slower", "faster", "same", "unclear"]
MOST_DRAWN, MOST_DOTS = 50, 2000
ABOVE = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)
BELOW = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
ROUND = [*BELOW, 1, *ABOVE]
CROWD = 78
"""A label this many pixels or less from the label of no change would touch it."""
AXIS: Spec = {"title": "time of head against base, log scale", "titleFontSize": {"expr": "windowSize()[0] < 700 ? 0 : 11.5"}}
SETTLED = "indexof(['same', 'unclear'], datum.verdict) >= 0 || datum.low > datum.margin_high || datum.high < datum.margin_low"
"""An expression for whether the interval also decides the size; otherwise only the direction is certain."""
LOG: Spec = {"type": "log", "nice": False, "padding": 12}
NARROW, SHORT, NAME, LONG = "windowSize()[0] < 700", 26, 17, 50


def _looks(legend: Spec | None) -> Spec:
    """Colour and shape both show the verdict, so that either is enough."""
    colours = {"domain": VERDICTS, "range": [VERMILION, BLUE, GREY, GREY]}
    shapes = {"domain": VERDICTS, "range": ["triangle-down", "triangle-up", "circle", "diamond"]}
    verdict: Spec = {"field": "verdict", "type": "nominal", "legend": legend}
    return {"color": {**verdict, "scale": colours}, "shape": {**verdict, "scale": shapes}}


def _ratio_axis() -> Spec:
    """An axis with round ratios on both sides of 1; those too close to the label of 1 have no label."""
    far = f"abs(scale('x', datum.value) - scale('x', 1)) > {CROWD}"
    size = "datum.value >= 1.5 ? format(datum.value, '.4~r') + 'x' : datum.value > 1 ? format(100 * datum.value - 100, '.3~r') + ' %' : "
    size += "datum.value > 0.66 ? format(100 - 100 * datum.value, '.3~r') + ' %' : format(1 / datum.value, '.2~r') + 'x'"
    word = "(datum.value > 1 ? ' slower' : ' faster')"
    text = f"datum.value === 1 ? 'no change' : {far} ? ({size}) + {word} : ''"
    looks = {"orient": "top", "grid": False, "labelOverlap": "greedy", "labelSeparation": 8, **AXIS}
    return {**looks, "values": ROUND, "tickCount": len(ROUND), "labelExpr": text}


def _forest() -> Chart:
    """Every ratio in its own row; long labels are cut in the middle, and on a narrow screen their folder and common ending are dropped."""
    label, tail = "datum.label", vega.first("tail")
    told = f"slice({label}, 0, length({label}) - length({tail}))"
    across: Spec = {"field": "ratio", "type": "quantitative", "scale": LOG, "axis": _ratio_axis()}
    word = f"split({told}, ' ')[0]"
    own = f"(peek(split({word}, '/')) + slice({told}, length({word})))"
    name = f"min({NAME}, indexof({own} + ' ', ' '))"
    cut = f"(length({own}) > {SHORT} ? slice({own}, 0, {name}) + '…' + slice({own}, {name} - {SHORT - 1}) : {own})"
    middle = f"length({label}) > {LONG} ? slice({label}, 0, {LONG // 2}) + '…' + slice({label}, 1 - {LONG // 2}) : {label}"
    names = vega.names(labelLimit=330, labelExpr=f"{NARROW} && length({label}) > {SHORT} ? {cut} : {middle}")
    down: Spec = {"field": "label", "type": "nominal", "sort": None, "scale": {"paddingInner": 0, "paddingOuter": 0}, "axis": names}
    looks = _looks(None)
    tooltip = vega.told(("label", "case"), ("text", "change"), ("verdict", "verdict"), ("before", "base"), ("after", "head"))
    band: Spec = {"y": down, "x": {**across, "field": "margin_low"}, "x2": {"field": "margin_high"}}
    ends: Spec = {"y": down, "x": {**across, "field": "low"}, "x2": {"field": "high"}, "color": looks["color"]}
    even = {"data": {"values": [{}]}, "mark": {"type": "rule", "tooltip": None}, "encoding": {"x": {"datum": 1, "type": "quantitative"}}}
    aside: Spec = {"x": {"expr": "width"}, "dx": 8, "align": "left", "fontSize": {"expr": f"{NARROW} ? 0 : 11"}}
    mark: Spec = {"opacity": 1, "size": 54, "cursor": "pointer"}
    layers = [
        vega.layer("bar", band, color=GREY, opacity=0.16, height={"band": 1}),
        even,
        vega.layer("rule", ends, "isValid(datum.low) && isValid(datum.high)", strokeWidth=3, opacity=0.5),
        vega.layer("point", {"y": down, "x": across, **looks, "tooltip": tooltip}, SETTLED, filled=True, **mark),
        vega.layer("point", {"y": down, "x": across, **looks, "tooltip": tooltip}, f"!({SETTLED})", filled=False, strokeWidth=1.75, **mark),
        vega.layer("text", {"y": down, "text": {"field": "text", "type": "nominal"}}, **aside),
    ]
    spec = vega.framed(layers, {"step": 19}, padding={"left": 2, "top": 2, "bottom": 2, "right": 12})
    reading = (
        "Each row is a case: the mark is the change of time, head against base, and the bar its 99 % interval. ▼ slower and ▲ faster: the "
        "bar is on one side of no change (hollow if it reaches into the grey margin, so that the size is unclear); ● within the "
        "margin: the bar is inside it; ◆ unclear: the bar includes no change and reaches beyond the margin."
    )
    return Chart("compare-forest", "Change of each case, largest first", reading, spec, FOREST, compare_forest_rows)


def _scatter() -> Chart:
    text = vega.with_prefix("datum.value", vega.first("unit"))
    across: Spec = {"field": "before", "type": "quantitative", "scale": LOG, "axis": vega.log_axis("x", text, grid=False)}
    up: Spec = {"field": "after", "type": "quantitative", "scale": LOG, "axis": vega.log_axis("y", text, grid=False)}
    ends = [{"op": op, "field": side, "as": f"{op}_{side}"} for op in ("min", "max") for side in ("before", "after")]
    corners = [
        {"aggregate": ends},
        {"calculate": "min(datum.min_before, datum.min_after)", "as": "least"},
        {"calculate": "max(datum.max_before, datum.max_after)", "as": "most"},
    ]
    line: Spec = {"x": {**across, "field": "least"}, "y": {**up, "field": "least"}, "x2": {"field": "most"}, "y2": {"field": "most"}}
    looks = _looks(LEGEND)
    tooltip = vega.told(("label", "case"), ("before_text", "base"), ("after_text", "head"), ("text", "change"), ("verdict", "verdict"))
    layers = [
        {"transform": corners, "mark": {"type": "rule", "strokeDash": [4, 3], "tooltip": None}, "encoding": line},
        vega.layer("point", {"x": across, "y": up, **looks, "tooltip": tooltip}, filled=True, opacity=0.85, size=46, cursor="pointer"),
        *vega.captions("'head, log scale'", "'base, log scale'"),
    ]
    reading = "Each mark is a case; on the dashed line nothing changed, above it head takes more than base, below it less."
    return Chart("compare-scatter", "Before and after", reading, vega.framed(layers, 420), SCATTER, compare_scatter_rows)


def compare_forest_rows(document: dict[str, Any], most: int = MOST_DRAWN) -> Rows:
    """Rows for the largest effects, largest first; a delta without a ratio has no place on the axis and is listed elsewhere."""
    found = _labelled(document, _largest(document)[:most])
    tail = _tail([label for _, label in found])
    return [
        {
            **_common(delta, label), "tail": tail, "low": delta["low"], "high": delta["high"], "margin_low": 1 / (1 + delta["margin"]),
            "margin_high": 1 + delta["margin"], "before": _side(document, delta, "before"), "after": _side(document, delta, "after"),
        }
        for delta, label in found
    ]  # fmt: skip


def _tail(labels: list[str]) -> str:
    """The words that all labels end with, such as the one stack that was compared; never the first word of a label."""
    ends = [label.split(" ") for label in labels]
    count = 0
    while len(labels) > 1 and all(len(words) > count + 1 for words in ends) and len({words[-count - 1] for words in ends}) == 1:
        count += 1
    return "".join(f" {word}" for word in ends[0][len(ends[0]) - count :]) if count else ""


def compare_scatter_rows(document: dict[str, Any], most: int = MOST_DOTS) -> Rows:
    """Every case that has values above zero; if those, timed alone, contradict the pair, head is placed by the pair's ratio."""
    both = [delta for delta in _largest(document) if _positive(delta["before"]) and _positive(delta["after"])]
    unit = document["metrics"].get("time", {}).get("unit", "s")
    return [
        {
            **_common(delta, label), "before": delta["before"][0], "unit": unit,
            "after": delta["before"][0] * delta["ratio"] if _belied(delta) else delta["after"][0],
            "before_text": _side(document, delta, "before"), "after_text": _side(document, delta, "after"),
        }
        for delta, label in _labelled(document, both[:most])
    ]  # fmt: skip


def left_out(document: dict[str, Any], rows: Rows) -> str:
    """How many compared cases a picture does not show, and why; empty if it shows all."""
    deltas = [delta for delta in (document["comparison"] or {"deltas": []})["deltas"] if delta["metric"] == "time"]
    known = _largest(document)
    sound = sum(_positive(delta["before"]) and _positive(delta["after"]) for delta in known)
    counts = {"without a ratio": len(deltas) - len(known), "without a time on both sides": len(known) - sound,
              "with the smallest effects": sound - len(rows)}  # fmt: skip
    told = ", ".join(f"{count} {why}" for why, count in counts.items() if count > 0)
    return f"not drawn: {told}" if told else ""


def _common(delta: dict[str, Any], label: str) -> dict[str, Any]:
    return {"case": delta["case"], "label": label, "ratio": delta["ratio"], "verdict": delta["verdict"], "text": delta["effect"]}


def _largest(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = (document["comparison"] or {"deltas": []})["deltas"]
    known = [delta for delta in found if delta["metric"] == "time" and delta["ratio"]]
    return sorted(known, key=lambda delta: -abs(math.log(delta["ratio"])))


def _labelled(document: dict[str, Any], deltas: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each delta with its case's short label, or with the case's id if two labels are the same."""
    cases = {case["id"]: case for case in document["cases"]}
    short = [cases[delta["case"]]["label"] if delta["case"] in cases else delta["case"] for delta in deltas]
    twice = Counter(short)
    return [(delta, label if twice[label] == 1 else delta["case"]) for delta, label in zip(deltas, short, strict=True)]


def _positive(figure: list[Any] | None) -> bool:
    return bool(figure and figure[0] and figure[0] > 0)


def _belied(delta: dict[str, Any]) -> bool:
    """Whether the ratio of both sides' figures, each timed alone, is outside the interval of their interleaved pair."""
    if not delta["paired"] or delta["low"] is None or delta["high"] is None:
        return False
    return not delta["low"] <= delta["after"][0] / delta["before"][0] <= delta["high"]


def _side(document: dict[str, Any], delta: dict[str, Any], side: str) -> str:
    figure = delta[side]
    unit = document["metrics"].get(delta["metric"], {}).get("unit", "s")
    return with_error(figure[0], figure[1], figure[2], unit) if figure and figure[0] is not None else "–"


FOREST_PLOT, BEFORE_AFTER = _forest(), _scatter()
CHARTS = (FOREST_PLOT, BEFORE_AFTER)
