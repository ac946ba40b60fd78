"""What a cheaper number format costs and brings: speedup against accuracy, with the size of the weights."""

from __future__ import annotations

from typing import Any

from steelyard.model.units import plain
from steelyard.report.charts import ROWS, Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, GREY, Spec

COLUMNS = ("case", "label", "recipe", "speedup", "low", "high", "sqnr", "size", "best", "text", "sqnr_text", "size_text")
"""`speedup` is base over head with its interval, `sqnr` decibels of the signal that are kept, `size` bytes of the weights; `best` where no
other recipe of the same point is both faster and more accurate."""
METRIC, SIZE = "sqnr", "model_bytes"
MOST_NAMED = 24


def _tradeoff() -> Chart:
    across: Spec = {
        "field": "sqnr",
        "type": "quantitative",
        "scale": {"zero": False, "padding": 16},
        "axis": {"title": None, "grid": False},
    }
    up = vega.speedups("speedup")
    size: Spec = {"field": "size", "type": "quantitative", "scale": {"range": [40, 420]}, "legend": None}
    tooltip = vega.told(("label", "case"), ("text", "change"), ("sqnr_text", "SQNR"), ("size_text", "weights"))
    colour: Spec = {"field": "best", "type": "nominal", "scale": {"domain": [True, False], "range": [BLUE, GREY]}, "legend": None}
    point: Spec = {"x": across, "y": up, "color": colour, "size": size, "tooltip": tooltip}
    ends: Spec = {"x": across, "y": {**up, "field": "low"}, "y2": {"field": "high"}, "color": colour}
    name: Spec = {"x": across, "y": up, "text": {"field": "recipe", "type": "nominal"}}
    even = {"data": {"values": [{}]}, "mark": {"type": "rule", "strokeDash": [4, 3], "tooltip": None}, "encoding": {"y": {"datum": 1}}}
    layers = [
        even,
        vega.layer("rule", ends, "isValid(datum.low) && isValid(datum.high)", opacity=0.5),
        vega.layer("point", point, filled=True, opacity=0.85, cursor="pointer"),
        vega.layer("text", name, f"datum.best || length(data('{ROWS}')) <= {MOST_NAMED}", align="center", dy=-14, fontSize=10.5),
        *vega.captions("'speedup, log scale'", "'accuracy kept, SQNR in dB'"),
    ]
    reading = (
        "Each mark is a case: the further up the faster, the further right the more accurate, the smaller the fewer bytes of weights. Blue "
        "are those that no other of the same point beats in both. On the dashed line nothing is won."
    )
    return Chart("compare-accuracy", "Speedup against accuracy", reading, vega.framed(layers, 380), COLUMNS, accuracy_rows)


def accuracy_rows(document: dict[str, Any]) -> Rows:
    """Every change of time whose head has an SQNR."""
    cases = {case["id"]: case for case in document["cases"]}
    found = (document["comparison"] or {"deltas": []})["deltas"]
    rows = [_row(delta, cases[delta["case"]]) for delta in found if _fits(delta, cases.get(delta["case"]))]
    for row in rows:
        rivals = [other for other in rows if other["point"] == row["point"]]
        row["best"] = not any(other["speedup"] > row["speedup"] and other["sqnr"] > row["sqnr"] for other in rivals)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def _fits(delta: dict[str, Any], case: dict[str, Any] | None) -> bool:
    return bool(case and delta["metric"] == "time" and delta["ratio"] and METRIC in case["metrics"])


def _row(delta: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    sqnr, size = case["metrics"][METRIC][0], (case["metrics"].get(SIZE) or [None])[0]
    low, high = (1 / end if end else None for end in (delta["high"], delta["low"]))
    return {
        "case": delta["case"], "label": case["label"] or delta["case"], "recipe": case["variant"], "point": delta["base"],
        "speedup": 1 / delta["ratio"], "low": low, "high": high, "sqnr": sqnr, "size": size, "best": False,
        "text": delta["effect"], "sqnr_text": f"{sqnr:.1f} dB", "size_text": plain(size, "B") if size else "",
    }  # fmt: skip


CHARTS = (_tradeoff(),)
