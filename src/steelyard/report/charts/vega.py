"""Parts that several charts share, so that time, speedup and units look the same on every page.

A spec holds no name and no unit of a result: captions and units are read from the first row when the chart is drawn.
"""

from __future__ import annotations

from typing import Any

from steelyard.model.record import BAD
from steelyard.report.charts import ROWS

Spec = dict[str, Any]

BLUE, ORANGE, VERMILION, GREY = "#0072B2", "#E69F00", "#D55E00", "#767676"
TIMES = "\u00d7"
NARROW = "\u202f"
DECADE = 12
LEGEND: Spec = {"title": None, "orient": "top", "offset": 22, "symbolOpacity": 1}
"""What signs mean, above the captions."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def framed(layers: list[Spec], height: int | Spec, **more: Any) -> Spec:
    """A chart as wide as its place, whose layers all draw from `rows`."""
    size: Spec = {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": SCHEMA, "data": {"name": ROWS}, **size, **more, "layer": layers}


def layer(mark: str, encoding: Spec, where: str = "", **looks: Any) -> Spec:
    """One mark over the rows where an expression holds; only marks that carry a tooltip react to the pointer.

    Rows have been sorted out before, so Vega-Lite's own filter of values that fit no scale is off.
    """
    kept: Spec = {"transform": [{"filter": where}]} if where else {}
    quiet: Spec = {} if "tooltip" in encoding else {"tooltip": None}
    return {**kept, "mark": {"type": mark, "invalid": None, **quiet, **looks}, "encoding": encoding}


def ends_of(value: str) -> list[Spec]:
    """Both ends of the interval as `from` and `to`; without one they are the value itself, so that no row has to be left out."""
    return [
        {"calculate": f"isValid(datum.{end}) ? datum.{end} : datum.{value}", "as": name} for end, name in (("low", "from"), ("high", "to"))
    ]


def first(field: str) -> str:
    """An expression for what the first row says; captions are the same in all rows."""
    return f"(length(data('{ROWS}')) ? data('{ROWS}')[0].{field} : '')"


def captions(up: str, across: str = "") -> list[Spec]:
    """What the axes show: the vertical one level above it, so that it reads horizontally, the horizontal one at its right end."""
    above = _note(up, x=0, y=-9, align="left", baseline="bottom")
    return [above, _note(across, x="width", y={"expr": "height + 26"}, align="right", baseline="top")] if across else [above]


def _note(text: str, **place: Any) -> Spec:
    return {"data": {"values": [{}]}, "mark": {"type": "text", "text": {"expr": text}, "tooltip": None, **place}}


def with_prefix(value: str, unit: str) -> str:
    """An expression that writes a number with an SI prefix beside its unit: `10 µs`, `1.5 TFLOP/s`."""
    short = f"format({value}, '~s')"
    last = f"slice({short}, -1)"
    parted = f"(isNaN(toNumber({last})) ? slice({short}, 0, -1) + '{NARROW}' + {last} : {short} + '{NARROW}')"
    return f"({parted} + {unit})"


def log_axis(scale: str, text: str, leads: tuple[int, ...] = (1, 2, 5), wide: float = DECADE, **more: Any) -> Spec:
    """Labels at 1, 2 and 5 of each decade alone where the axis spans more than one; `text` is the expression of a label."""
    lead = "round(1e6 * datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))) / 1e6"
    narrow = f"domain('{scale}')[1] < {wide} * domain('{scale}')[0]"
    shown = f"{narrow} || indexof({list(leads)}, {lead}) >= 0 ? {text} : ''"
    return {"title": None, "labelOverlap": "greedy", "labelSeparation": 6, "tickCount": 6, "labelExpr": shown, **more}


def speedups(field: str) -> Spec:
    """Speedups on a logarithmic axis, where 2x and 0.5x lie equally far from 1x."""
    axis = log_axis("y", f"format(datum.value, '~r') + '{TIMES}'", (1, 2, 3, 5, 7), 2.5, tickCount=5)
    return {"field": field, "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 6}, "axis": axis}


def even() -> Spec:
    """The line of the baseline itself at 1x, where it lies within the axis: it does not stretch one that is far from it."""
    shown = {"expr": "inrange(1, domain('y')) ? 1 : 0"}
    mark = {"type": "rule", "strokeDash": [2, 3], "color": GREY, "opacity": shown, "tooltip": None}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {"y": {"value": {"expr": "clamp(scale('y', 1), 0, height)"}}}}


def moment(source: str, name: str) -> Spec:
    """ISO text made a time in the chart itself, so that it does not matter how the rows came in."""
    return {"calculate": f"toDate(datum.{source})", "as": name}


def dates(field: str) -> Spec:
    """Nights are told apart in UTC, as they are stored, and named in one form, whether or not a month begins there."""
    day = "%b %-d"
    forms = {"year": "%b %-d, %Y", "quarter": day, "month": day, "week": day, "date": day, "hours": "%H:%M", "minutes": "%H:%M"}
    axis = {"title": None, "labelOverlap": True, "labelSeparation": 10, "grid": False, "tickCount": 8, "format": forms}
    return {"field": field, "type": "temporal", "scale": {"type": "utc"}, "axis": axis}


def by_name(field: str) -> Spec:
    """One colour per name from the theme's palette, with the legend above in as many columns as fit.

    Points take it as `color` and `shape`, lines beside them as `stroke`, areas as `fill`: a channel that several layers share
    would part the points' colours from their shapes in the legend.
    """
    columns = {"expr": "max(1, floor((isFinite(containerSize()[0]) ? containerSize()[0] : width) / 200))"}
    legend = {"title": None, "orient": "top", "columns": columns, "labelLimit": 240, "symbolOpacity": 1, "offset": 24}
    return {"field": field, "type": "nominal", "sort": None, "legend": legend}


def names(**more: Any) -> Spec:
    """An axis of names beside what they stand for, without a line."""
    return {"title": None, "domain": False, "ticks": False, "labelPadding": 8, **more}


def told(*pairs: tuple[str, str]) -> list[Spec]:
    """A tooltip of named texts, already written with unit and uncertainty in the rows."""
    return [{"field": field, "type": "nominal", "title": title} for field, title in pairs]


def status_text(status: str) -> str:
    """`✗ wrong`, `! failed`, `– unsupported`: a sign and a word, as colour alone says nothing."""
    sign = "✓" if status == "ok" else "✗" if status == "wrong" else "!" if status in BAD else "–"
    return f"{sign} {status.replace('_', ' ')}"
