"""The roofline: how fast each case computes for the data it moves, below the most that the machine can do."""

from __future__ import annotations

from typing import Any

from steelyard.measuring.roofline import sources_of
from steelyard.model.units import percent, plain
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.vega import GREY, Spec

COLUMNS = ("kind", "intensity", "achieved", "low", "high", "roof", "source", "line", "bound", "share", "label", "text", "case")
"""`kind` is point (a case), roof (a corner of a roof line), peak or slope (the place of the roof's name); `intensity` FLOP per byte,
`achieved` FLOP/s with its interval; `roof` names the roof, `source` is measured or datasheet, for a line datasheet if one of its peaks
is; `line` the variant, `bound` compute, memory or launch, `share` the part of the roof reached as text; `label` names the case or the
roof, `text` is `achieved` with its unit."""
EMPTY: dict[str, Any] = dict.fromkeys(COLUMNS)

MARGIN = 4.0
"""The factor by which the roofs extend beyond the outermost points."""

ROOM, WIDE = 320, 420
"""In pixels: the least width of a chart with the names of roofs in it, and of its container for a legend on one line."""

_SHAPES = {"compute": "square", "memory": "circle", "launch": "triangle-up"}


def _roofline() -> Chart:
    ticks = vega.log_axis("x", "format(datum.value, '~r')", grid=False)
    across: Spec = {"field": "intensity", "type": "quantitative", "scale": {"type": "log", "nice": False}, "axis": ticks}
    rates = vega.log_axis("y", vega.with_prefix("datum.value", "'FLOP/s'"))
    up: Spec = {"field": "achieved", "type": "quantitative", "scale": {"type": "log", "nice": True}, "axis": rates}
    wide = f"(isFinite(containerSize()[0]) ? containerSize()[0] : width) >= {WIDE}"
    below: Spec = {"orient": "bottom", "offset": 30, "columns": {"expr": f"{wide} ? {len(_SHAPES)} : 1"}}
    dash: Spec = {
        "field": "source",
        "type": "nominal",
        "scale": {"domain": ["measured", "datasheet"], "range": [[1, 0], [5, 4]]},
        "legend": {"title": "roof", "symbolStrokeWidth": 1.75, **below},
    }
    shape: Spec = {
        "field": "bound",
        "type": "nominal",
        "scale": {"domain": list(_SHAPES), "range": list(_SHAPES.values())},
        "legend": {"title": "bound by", **below, "symbolFillColor": GREY, "symbolStrokeColor": GREY},
    }
    tooltip = vega.told(("label", "case"), ("line", "variant"), ("text", "achieved"), ("share", "of the roof"), ("bound", "bound by"))
    name: Spec = {"fontSize": 10.5, "color": GREY, "text": {"expr": f"width < {ROOM} ? '' : datum.label"}}
    place: Spec = {"x": across, "y": up}
    line: Spec = {**place, "detail": {"field": "roof", "type": "nominal"}, "strokeDash": dash, "order": {"field": "intensity"}}
    ends: Spec = {"x": across, "y": {**up, "field": "from"}, "y2": {"field": "to"}, "color": vega.by_name("line")}
    point: Spec = {**place, "color": vega.by_name("line"), "shape": shape, "tooltip": tooltip}
    over, under = "datum.source === 'datasheet'", "datum.source !== 'datasheet'"
    layers = [
        vega.layer("line", line, "datum.kind === 'roof'", color=GREY, strokeWidth=1.5),
        vega.layer("text", place, f"datum.kind === 'peak' && {over}", align="right", baseline="bottom", dy=-4, **name),
        vega.layer("text", place, f"datum.kind === 'peak' && {under}", align="right", baseline="top", dy=5, **name),
        vega.layer("text", place, f"datum.kind === 'slope' && {over}", align="right", baseline="bottom", dx=-5, dy=-3, **name),
        vega.layer("text", place, f"datum.kind === 'slope' && {under}", align="left", baseline="top", dx=5, dy=3, **name),
        vega.layer("rule", ends, "datum.kind === 'point'"),
        vega.layer("point", point, "datum.kind === 'point'", filled=True, size=62, opacity=0.9, cursor="pointer"),
        *vega.captions("'achieved FLOP/s'", "'intensity, FLOP per byte moved'"),
    ]
    reading = (
        "Each point is a case; the line above it is the most this machine could do at that intensity (measured roofs solid, dashed "
        "if a peak is from a datasheet), so the closer a point is to its roof, the less there is to gain: under the slope memory is the "
        "limit, under the flat part arithmetic is."
    )
    return Chart("roofline", "Roofline", reading, vega.framed(layers, 430, transform=vega.ends_of("achieved")), COLUMNS, roofline_rows)


def roofline_rows(document: dict[str, Any]) -> Rows:
    """Every case that has a roof, and the roofs over them."""
    if not document["roofline"]:
        return []
    cases = {case["id"]: case for case in document["cases"]}
    shown = [cases[id] for id in document["roofline"]["points"] if id in cases and cases[id]["roof"]]
    points = [_point(case) for case in shown]
    types = {case["roof"].get("dtype") for case in shown}
    roofs = [roof for roof in document["roofline"]["roofs"] if not types or not roof["dtype"] or roof["dtype"] in types]
    return [*roof_rows(roofs, [row["intensity"] for row in points]), *points]


def _point(case: dict[str, Any]) -> dict[str, Any]:
    roof = case["roof"]
    value, low, high = (case["metrics"].get("time") or [None, None, None])[:3]
    bounds = {"low": roof["achieved"] * value / high, "high": roof["achieved"] * value / low} if value and low and high else {}
    row = {**EMPTY, "kind": "point", "intensity": roof["intensity"], "achieved": roof["achieved"], "bound": roof["bound"], **bounds}
    text = {"share": percent(roof["share"]) if roof["share"] is not None else "", "text": plain(roof["achieved"], "FLOP/s")}
    return {
        **row,
        "line": f"{case['backend']}/{case['variant']}",
        "label": case["label"] or case["id"],
        **text,
        "case": case["id"],
    }


def roof_rows(roofs: list[dict[str, Any]], intensities: list[float]) -> Rows:
    """Each roof as two or three corners with its names, wide enough for all points and for every ridge."""
    ridges = [roof["compute"] / roof["bandwidth"] for roof in roofs if roof["compute"] and roof["bandwidth"]]
    spread = [*(value for value in intensities if value and value > 0), *ridges] or [1.0]
    left, right = min(spread) / MARGIN, max(spread) * MARGIN
    found: Rows = []
    named: set[str] = set()
    for number, roof in enumerate(roofs):
        before = sum(_name(other) == _name(roof) for other in roofs[:number])
        for row in _roof(roof, left, right, _name(roof) + (f" ({before + 1})" if before else "")):
            if row["kind"] == "roof" or row["label"] not in named:
                found.append(row)
            named |= {row["label"]} if row["kind"] != "roof" else set()
    return found


def _name(roof: dict[str, Any]) -> str:
    return " ".join(part for part in (roof["device"], roof["dtype"], roof["source"]) if part)


def _roof(roof: dict[str, Any], left: float, right: float, name: str) -> Rows:
    compute, bandwidth = roof["compute"], roof["bandwidth"]
    if not compute and not bandwidth:
        return []
    reach = [height for height in (compute, bandwidth * right if bandwidth else None) if height]
    ridge = compute / bandwidth if compute and bandwidth else None
    corners = [(left, min(bandwidth * left, compute or float("inf")) if bandwidth else compute), (right, min(reach))]
    if ridge and left < ridge < right:
        corners.insert(1, (ridge, compute))
    of_compute, of_memory = sources_of(roof["source"])
    common = {**EMPTY, "roof": name, "source": "datasheet" if "datasheet" in (of_compute, of_memory) else roof["source"]}
    rows = [{**common, "kind": "roof", "intensity": x, "achieved": y, "label": name} for x, y in corners]
    if compute:
        words = " ".join(part for part in (roof["dtype"], plain(compute, "FLOP/s"), of_compute) if part)
        rows.append({**common, "kind": "peak", "source": of_compute, "intensity": right, "achieved": compute, "label": words})
    if bandwidth:
        words = f"{plain(bandwidth, 'B/s')} {of_memory}"
        place = _on_slope(bandwidth, left, min(ridge or right, right), of_memory)
        rows.append({**common, "kind": "slope", "source": of_memory, "label": words, **place})
    return rows


def _on_slope(bandwidth: float, left: float, right: float, source: str) -> dict[str, float]:
    """The place of a slope's name: a datasheet's above the slope in the middle, a measured one's below it near the lower end."""
    at = left * (max(right, left) / left) ** (0.6 if source == "datasheet" else 0.1)
    return {"intensity": at, "achieved": bandwidth * at}


CHARTS = (_roofline(),)
