"""Both arms of a pair on a case's page: their samples in one picture, and how the ratio settled from rebuild to rebuild."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

from steelyard.measuring.stats import mean_interval
from steelyard.model import effects
from steelyard.model.pair import ALPHA
from steelyard.model.units import plain
from steelyard.report.charts import Chart, Rows, kept_rows, vega
from steelyard.report.charts.case import SHARE, SHARES, scale_ends, times_axis
from steelyard.report.charts.vega import BLUE, GREY, LEGEND, ORANGE, Spec

OVERLAY = ("case", "side", "least", "most", "number", "share", "text")
"""`number` of the samples of base or head (`side`) are between `least` and `most` seconds; both sides have the same bins."""
REBUILDS = ("case", "rebuild", "ratio", "mean", "low", "high", "margin_low", "margin_high", "final_low", "final_high", "text", "so_far")
"""The ratio that each rebuild gave, the geometric mean up to it with its interval, and the interval of the verdict."""
SIDES = ["base", "head"]
MOST_CASES = 1000
"""With more cases than this a page has no charts of single pairs, to stay small."""
FEWEST, BINS = 3, 64


def _overlay() -> Chart:
    colours = {"domain": SIDES, "range": [ORANGE, BLUE]}
    side: Spec = {"field": "side", "type": "nominal", "legend": LEGEND, "scale": colours}
    across: Spec = {**times_axis("least"), "bin": {"binned": True}}
    tooltip = [*vega.told(("side", "side"), ("text", "time per call"), ("number", "samples")), {**SHARE, "format": ".1%"}]
    bars: Spec = {"x": across, "x2": {"field": "most"}, "y": {**SHARES, "stack": None}, "fill": side, "tooltip": tooltip}
    layers = [
        vega.layer("bar", bars, opacity=0.5, binSpacing=0),
        *vega.captions("'share of samples'", "'time per call, each timed alone'"),
    ]
    reading = (
        "How often each time occurred in base (orange) and head (blue), each timed alone: two separate hills are a "
        "clear difference; where they overlap, only the interleaved pairs can decide."
    )
    build, rows = overlay_rows, partial(kept_rows, "case-overlay")
    return Chart("case-overlay", "Base and head", reading, vega.framed(layers, 220), OVERLAY, rows, build)


def _rebuilds() -> Chart:
    axis = {"title": None, "tickMinStep": 1, "format": "d", "grid": False, "labelOverlap": True}
    across: Spec = {"field": "rebuild", "type": "quantitative", "scale": {"nice": False, "zero": False, "padding": 10}, "axis": axis}
    size = "format(100 * abs(datum.value - 1), '.3~r') + ' % '"
    words = f"datum.value === 1 ? 'no change' : {size} + (datum.value > 1 ? 'slower' : 'faster')"
    ticks: Spec = {"title": None, "tickCount": 5, "labelExpr": words}
    up: Spec = {"field": "ratio", "type": "quantitative", "scale": {"zero": False, "nice": True}, "axis": ticks}
    tooltip = vega.told(("rebuild", "rebuild"), ("text", "this rebuild"), ("so_far", "all up to it"))
    band: Spec = {"y": {**up, "field": "margin_low"}, "y2": {"field": "margin_high"}}
    final: Spec = {"y": {**up, "field": "final_low"}, "y2": {"field": "final_high"}}
    running: Spec = {"x": across, "y": {**up, "field": "low"}, "y2": {"field": "high"}}
    first = "datum.rebuild === 1"
    layers = [
        vega.layer("rect", band, first, color=GREY, opacity=0.14, x=0, x2="width"),
        vega.layer("rule", final, f"{first} && isValid(datum.final_low)", color=BLUE, strokeWidth=4, x="width"),
        vega.layer("area", running, "isValid(datum.low) && isValid(datum.high)", color=BLUE, opacity=0.2, line=False),
        vega.layer("line", {"x": across, "y": {**up, "field": "mean"}}, color=BLUE, strokeWidth=1.75),
        vega.layer("point", {"x": across, "y": up, "tooltip": tooltip}, color=BLUE, filled=True, size=36, opacity=0.85),
        *vega.captions("'time of head against base'", "'rebuild'"),
    ]
    reading = (
        "Each dot is the ratio of one rebuild; the line is their mean so far and the band its 99 % interval, which narrows as rebuilds are "
        "added. The bar at the right end is the verdict's interval, which also allows for repeated looks at the data; grey is the margin."
    )
    build, rows = rebuild_rows, partial(kept_rows, "case-rebuilds")
    return Chart("case-rebuilds", "Ratio of each rebuild", reading, vega.framed(layers, 220), REBUILDS, rows, build)


def overlay_rows(document: dict[str, Any]) -> Rows:
    """Both sides of every pair in the same bins, if the document has the samples of both sides."""
    cases, found = {case["id"]: case for case in document["cases"]}, list[dict[str, Any]]()
    for delta in _pairs(document):
        sides = [_times(cases.get(delta[side])) for side in ("base", "case")]
        if delta["base"] != delta["case"] and all(len(times) > 1 for times in sides):
            found += _bins(delta["case"], sides)
    return found


def _pairs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The first comparison of time for each case; none if there are too many cases."""
    deltas = (document["comparison"] or {"deltas": []})["deltas"] if len(document["cases"]) <= MOST_CASES else []
    first: dict[str, dict[str, Any]] = {}
    for delta in deltas:
        if delta["metric"] == "time" and delta["ratio"]:
            first.setdefault(delta["case"], delta)
    return list(first.values())


def _times(case: dict[str, Any] | None) -> list[float]:
    samples = case["samples"] if case and case["status"] == "ok" else None
    if not samples:
        return []
    dropped = (not samples.get("kept") and samples["discarded"]) or [0] * len(samples["time"])
    return [time for time, out in zip(samples["time"], dropped, strict=True) if time is not None and not out]


def _bins(case: str, sides: list[list[float]]) -> Rows:
    ends = [scale_ends(times) for times in sides]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if not low < high:
        return []
    count = min(BINS, math.ceil(8 * max(map(len, sides)) ** (1 / 3)))
    width = (high - low) / count
    edges = [low + width * at for at in range(count + 1)]
    found: Rows = []
    for name, times in zip(SIDES, sides, strict=True):
        numbers = Counter(min(count - 1, max(0, int((time - low) / width))) for time in times)
        for at, (least, most) in enumerate(pairwise(edges)):
            if numbers[at]:
                text = f"{plain(least, 's', 4)} to {plain(most, 's', 4)}"
                share = numbers[at] / len(times)
                found.append(
                    {"case": case, "side": name, "least": least, "most": most, "number": numbers[at], "share": share, "text": text}
                )
    return found


def rebuild_rows(document: dict[str, Any]) -> Rows:
    """The ratios of every pair's rebuilds, with the mean and the interval up to each."""
    found: Rows = []
    for delta in _pairs(document):
        ratios = [ratio for ratio in delta["rebuilds"] if ratio]
        ends = {"margin_low": 1 / (1 + delta["margin"]), "margin_high": 1 + delta["margin"], "final_low": delta["low"]}
        for number, ratio in enumerate(ratios if len(ratios) >= FEWEST else (), 1):
            known = mean_interval([math.log(one) for one in ratios[:number]], 1 - ALPHA) if number >= FEWEST else None
            mean = math.exp(sum(map(math.log, ratios[:number])) / number)
            low, high = (math.exp(known.low), math.exp(known.high)) if known else (None, None)
            row = {"case": delta["case"], "rebuild": number, "ratio": ratio, "mean": mean, "low": low, "high": high, **ends}
            told = {"text": effects.change(ratio), "so_far": effects.change(mean, low, high)}
            found.append({**row, "final_high": delta["high"], **told})
    return found


CHARTS = (_overlay(), _rebuilds())
