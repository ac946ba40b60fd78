"""What a cheaper number format costs and gains: a chart of speedup, accuracy and bytes of weights."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from steelyard.model.units import plain
from steelyard.report.charts import ROWS, Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, GREY, ORANGE, Spec

COLUMNS = (
    "case", "label", "recipe", "base", "state", "speedup", "low", "high", "sqnr", "size",
    "text", "sqnr_text", "size_text", "place", "narrow",
)  # fmt: skip
"""`speedup` is base over head with its interval, `sqnr` the accuracy in decibels, `size` bytes of the weights; `base` names
the baseline of all rows; `state` is front, beaten, unclear or baseline; `place` and `narrow` are the side of the mark for the name in
a wide and in a narrow chart, and are empty if the name would cover something."""
METRIC, SIZE, BASE_SIZE = "sqnr", "model_bytes", "bytes_before"
STATES = {"front": (BLUE, "circle"), "beaten": (GREY, "square"), "unclear": (ORANGE, "diamond"), "baseline": (GREY, "triangle-up")}
TITLES = {"front": "on the front", "beaten": "beaten", "unclear": "speed unclear", "baseline": "baseline"}
LARGEST, UNKNOWN = 420, 120
"""The area of the largest mark, and of a mark whose weights have an unknown size."""
SAME_SIZE = 0.01
"""Weights that differ by no more than this share count as the same size, so that scales and zero points do not matter."""
TOP, EDGE, MARGIN = 14, 34, 42
"""In pixels: how far below the upper edge the baseline is drawn, which loses no accuracy and so has no number of decibels; and the least
distance of all other marks from the left and right edges, and from the upper and lower edges."""
TALL = 380
WIDE, NARROW = 640, 235
LETTER, LINE, GAP = 6.2, 13, 14
"""In pixels, for placing names: the width of a letter, the height of a line, and the distance of a name from its mark. WIDE and NARROW
are the distances from the first to the last mark."""
MOST_NAMED = 12


def _tradeoff() -> Chart:
    ticks = vega.log_axis("x", f"format(datum.value, '~r') + '{vega.TIMES}'", (1, 2, 3, 5, 7), 2.5, tickCount=5, grid=False)
    across: Spec = {"field": "speedup", "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": EDGE}, "axis": ticks}
    decibels = {"zero": False, "nice": False, "padding": MARGIN}
    up: Spec = {"field": "sqnr", "type": "quantitative", "scale": decibels, "axis": {"title": None, "tickCount": 6}}
    tooltip = vega.told(("label", "case"), ("state", "state"), ("text", "change"), ("sqnr_text", "SQNR"), ("size_text", "weights"))
    look: Spec = {"color": _by_state(0), "shape": _by_state(1), "size": _by_size(), "tooltip": tooltip}
    point: Spec = {"x": across, "y": up, **look}
    ends: Spec = {"x": {**across, "field": "low"}, "x2": {"field": "high"}, "y": up, "color": _by_state(0)}
    name: Spec = {"x": across, "y": up, "text": {"field": "recipe", "type": "nominal"}}
    at_top: Spec = {"y": {"value": TOP}}
    spread = "isValid(datum.low) && isValid(datum.high)"
    beside: Spec = {
        "align": {"expr": f"{{right: 'left', left: 'right'}}[{_PLACE}] || 'center'"},
        "dx": {"expr": f"{{right: {GAP}, left: -{GAP}}}[{_PLACE}] || 0"},
        "dy": {"expr": f"{{above: -{GAP + 2}, below: {GAP + 2}}}[{_PLACE}] || 0"},
        "opacity": {"expr": f"{_PLACE} ? 1 : 0"},
        "baseline": "middle", "fontSize": 10.5,
    }  # fmt: skip
    inner = "scale('x', datum.speedup) > width - 90"
    inwards: Spec = {
        "align": {"expr": f"{inner} ? 'right' : 'left'"}, "dx": {"expr": f"{inner} ? -{GAP + 2} : {GAP + 2}"},
        "baseline": "middle", "fontSize": 10.5,
    }  # fmt: skip
    even = {"data": {"values": [{}]}, "mark": {"type": "rule", "strokeDash": [2, 3], "color": GREY, "tooltip": None}}
    layers = [
        {**even, "encoding": {"x": {"datum": 1}}},
        vega.layer("rule", ends, f"{spread} && datum.state !== 'unclear'", opacity=0.6),
        vega.layer("rule", ends, f"{spread} && datum.state === 'unclear'", opacity=0.8, strokeDash=[3, 3]),
        vega.layer("point", point, "indexof(['front', 'beaten'], datum.state) >= 0", filled=True, opacity=0.85, cursor="pointer"),
        vega.layer("point", point, "datum.state === 'unclear'", filled=False, strokeWidth=1.5, cursor="pointer"),
        vega.layer("point", {**point, **at_top}, "datum.state === 'baseline'", filled=True, opacity=1, cursor="pointer"),
        vega.layer("text", name, "datum.state !== 'baseline'", **beside),
        vega.layer("text", {**name, **at_top}, "datum.state === 'baseline'", **inwards),
        *vega.captions("'accuracy kept, SQNR in dB'", f"'speedup over ' + {vega.first('base')} + ', log scale'"),
    ]
    reading = (
        "Each mark is a case: further right is faster, higher is more accurate, larger has more bytes of weights. Blue "
        "circles are the Pareto front: no other case is at least as fast, as accurate and as small and better in one of these. "
        "Diamonds are cases whose change of time is unclear. The triangle is the baseline, which loses nothing and is above the scale."
    )
    return Chart("compare-accuracy", "Speedup against accuracy and size", reading, vega.framed(layers, TALL), COLUMNS, accuracy_rows)


_PLACE = f"(width < {(WIDE + NARROW) // 2 + EDGE} ? datum.narrow : datum.place)"


def _by_state(part: int) -> Spec:
    """Colour or shape, with one legend for both."""
    scale = {"domain": list(STATES), "range": [look[part] for look in STATES.values()]}
    columns = {"expr": "(isFinite(containerSize()[0]) ? containerSize()[0] : width) < 420 ? 2 : 4"}
    legend = {**vega.LEGEND, "offset": 30, "columns": columns, "labelExpr": f"({TITLES})[datum.label]", "symbolSize": 70}
    return {"field": "state", "type": "nominal", "scale": scale, "legend": legend}


def _by_size() -> Spec:
    """Bytes as the area of a mark; the legend shows the smallest and the largest."""
    ends = f"extent(pluck(data('{ROWS}'), 'size'))"
    values = f"!isValid({ends}[0]) ? [] : {ends}[0] === {ends}[1] ? [{ends}[0]] : {ends}"
    legend = {
        "title": "weights", "orient": "bottom", "direction": "horizontal", "values": {"expr": values}, "offset": 34, "titleOrient": "left",
        "symbolFillColor": GREY, "symbolStrokeColor": GREY, "symbolType": "circle",
        "labelExpr": _in_bytes("datum.value"),
    }  # fmt: skip
    scale = {"zero": True, "nice": False, "range": [0, LARGEST]}
    known: Spec = {"test": "isValid(datum.size)", "field": "size", "type": "quantitative", "scale": scale, "legend": legend}
    return {"condition": known, "value": UNKNOWN}


def _in_bytes(value: str) -> str:
    units = [("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)]
    told = [f"{value} >= {factor} ? format({value} / {factor}, '.3~r') + ' {unit}' : " for unit, factor in units]
    return "".join(told) + f"{value} + ' B'"


def accuracy_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """Rows for a base and the changes of time against it that have an SQNR; the base is the given case's, else the most common one."""
    cases = {item["id"]: item for item in document["cases"]}
    found = (document["comparison"] or {"deltas": []})["deltas"]
    fitting = [delta for delta in found if _fits(delta, cases.get(delta["case"]))]
    wanted = [delta["base"] for delta in fitting if case in (None, delta["case"], delta["base"])]
    if not wanted:
        return []
    base = Counter(wanted).most_common(1)[0][0]
    rows = sorted((_row(delta, cases[delta["case"]]) for delta in fitting if delta["base"] == base), key=lambda row: str(row["case"]))
    sizes = [cases[row["case"]]["effective"].get(BASE_SIZE) for row in rows]
    first = _baseline(base, cases.get(base), next((size for size in sizes if isinstance(size, (int, float))), None))
    for row in rows:
        row["state"] = (
            "unclear" if row["state"] == "unclear" else "beaten" if any(beats(other, row) for other in [first, *rows]) else "front"
        )
    for name, width in (("place", WIDE), ("narrow", NARROW)):
        for row, place in zip(rows, places(rows, first["recipe"], width), strict=True):
            row[name] = place
    return [{name: row.get(name) for name in COLUMNS} for row in ({**item, "base": first["recipe"]} for item in (first, *rows))]


def _fits(delta: dict[str, Any], case: dict[str, Any] | None) -> bool:
    kept = (case["metrics"].get(METRIC) or [None])[0] if case and delta["metric"] == "time" else None
    return isinstance(kept, (int, float)) and math.isfinite(kept) and bool(delta["ratio"]) and delta["ratio"] > 0


def _row(delta: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    sqnr, size = case["metrics"][METRIC][0], (case["metrics"].get(SIZE) or [None])[0]
    low, high = (1 / end if end else None for end in (delta["high"], delta["low"]))
    return {
        "case": delta["case"], "label": case["label"] or delta["case"], "recipe": case["variant"], "state": delta["verdict"],
        "speedup": 1 / delta["ratio"], "low": low, "high": high, "sqnr": sqnr, "size": size,
        "text": delta["effect"], "sqnr_text": f"{sqnr:.1f} dB", "size_text": plain(size, "B") if size else "",
    }  # fmt: skip


def _baseline(id: str, case: dict[str, Any] | None, size: float | None) -> dict[str, Any]:
    """The row of the base itself, at 1x and without an SQNR, since the other cases are compared with its answer."""
    named = (case["label"] or id, case["variant"]) if case else (id, "baseline")
    return {
        "case": id, "label": named[0], "recipe": named[1], "state": "baseline", "speedup": 1.0, "sqnr": None, "size": size,
        "text": "1.00\u00d7", "sqnr_text": "nothing is lost", "size_text": plain(size, "B") if size else "",
    }  # fmt: skip


def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a case is at least as good in speed, accuracy and size and better in one; an unclear speed is never better."""
    if one is other or one["state"] == "unclear":
        return False
    ahead = [one["speedup"] - other["speedup"], math.inf if one["sqnr"] is None else one["sqnr"] - other["sqnr"]]
    if one["size"] and other["size"] and abs(one["size"] / other["size"] - 1) > SAME_SIZE:
        ahead.append(other["size"] - one["size"])
    return bool(min(ahead) >= 0 and max(ahead) > 0)


def places(rows: list[dict[str, Any]], base: str, width: float) -> list[str]:
    """For each mark, the side on which its name covers no mark and no other name; empty if there is none."""
    even, *across = _pixels([0.0, *(math.log(row["speedup"]) for row in rows)], width)
    up = _pixels([-row["sqnr"] for row in rows], TALL - 2 * MARGIN)
    reach, level = GAP + LETTER * len(base), TOP - MARGIN
    taken = [(x - GAP, y - GAP, x + GAP, y + GAP) for x, y in zip(across, up, strict=True)]
    taken.append((even - reach, level - GAP, even + reach, level + GAP))
    found = []
    for row, x, y in zip(rows, across, up, strict=True):
        long = LETTER * len(row["recipe"])
        boxes = {
            "above": (x - long / 2, y - GAP - LINE, x + long / 2, y - GAP), "below": (x - long / 2, y + GAP, x + long / 2, y + GAP + LINE),
            "right": (x + GAP, y - LINE / 2, x + GAP + long, y + LINE / 2), "left": (x - GAP - long, y - LINE / 2, x - GAP, y + LINE / 2),
        }  # fmt: skip
        within = {side: box for side, box in boxes.items() if box[0] >= -EDGE and box[2] <= width + EDGE}
        free = (side for side, box in within.items() if not any(_meet(box, one) for one in taken))
        side = next(free, "")
        taken += [boxes[side]] if side else []
        found.append(side)
    return found


def _pixels(values: list[float], length: float) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) * length if high > low else length / 2 for value in values]


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def left_out(document: dict[str, Any], rows: Rows) -> str:
    """What a picture of some rows leaves out, in words: cases of the same workloads that are not ok, and those with another base."""
    cases = {case["id"]: case for case in document["cases"]}
    shown = {row["case"] for row in rows}
    kinds = {(cases[id]["workload"], str(cases[id]["params"])) for id in shown if id in cases}
    broken = [case for case in cases.values() if case["status"] != "ok" and (case["workload"], str(case["params"])) in kinds]
    named = [f"{case['variant']} ({case['status'].replace('_', ' ')})" for case in broken]
    more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    deltas = (document["comparison"] or {"deltas": []})["deltas"]
    others = {delta["base"] for delta in deltas if _fits(delta, cases.get(delta["case"]))} - shown
    told = [f"Not drawn: {', '.join([*named[:MOST_NAMED], *more])}."] if named else []
    if others:
        pictures = "other baseline have a picture" if len(others) == 1 else "other baselines have pictures"
        told.append(f"Cases of {len(others)} {pictures} of their own: --case.")
    return " ".join(told)


CHARTS = (_tradeoff(),)
