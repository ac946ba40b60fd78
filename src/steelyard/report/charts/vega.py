"""Parts that several charts share, so that time, speedup and units look the same on every page.

A spec has no name or unit of a result in it: captions and units are read from the first row when the chart is drawn.
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
"""A legend above the captions."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def framed(layers: list[Spec], height: int | Spec, **more: Any) -> Spec:
    """A chart as wide as its container, whose layers all draw from `rows`."""
    size: Spec = {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": SCHEMA, "data": {"name": ROWS}, **size, **more, "layer": layers}


def layer(mark: str, encoding: Spec, where: str = "", **looks: Any) -> Spec:
    """One mark for the rows that fit the expression `where`; only marks with a tooltip react to the pointer.

    Rows are already filtered, so Vega-Lite's own filter of values that fit no scale is off.
    """
    kept: Spec = {"transform": [{"filter": where}]} if where else {}
    quiet: Spec = {} if "tooltip" in encoding else {"tooltip": None}
    return {**kept, "mark": {"type": mark, "invalid": None, **quiet, **looks}, "encoding": encoding}


def ends_of(value: str) -> list[Spec]:
    """Both ends of the interval as `from` and `to`; an unknown end is the value itself, so that no row has to be left out."""
    return [
        {"calculate": f"isValid(datum.{end}) ? datum.{end} : datum.{value}", "as": name} for end, name in (("low", "from"), ("high", "to"))
    ]


def first(field: str) -> str:
    """An expression for a field of the first row; captions are the same in all rows."""
    return f"(length(data('{ROWS}')) ? data('{ROWS}')[0].{field} : '')"


def captions(up: str, across: str = "") -> list[Spec]:
    """The captions of the axes: that of the vertical axis is above it and horizontal, that of the horizontal axis at its right end."""
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
    """A logarithmic axis, labelled only at 1, 2 and 5 of each decade if it spans more than one; `text` is the expression of a label."""
    lead = "round(1e6 * datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))) / 1e6"
    narrow = f"domain('{scale}')[1] < {wide} * domain('{scale}')[0]"
    shown = f"{narrow} || indexof({list(leads)}, {lead}) >= 0 ? {text} : ''"
    return {"title": None, "labelOverlap": "greedy", "labelSeparation": 6, "tickCount": 6, "labelExpr": shown, **more}


def speedups(field: str) -> Spec:
    """Speedups on a logarithmic axis, where 2x and 0.5x are equally far from 1x."""
    axis = log_axis("y", f"format(datum.value, '~r') + '{TIMES}'", (1, 2, 3, 5, 7), 2.5, tickCount=5)
    return {"field": field, "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 6}, "axis": axis}


def even() -> Spec:
    """The line of the baseline itself at 1x, drawn only if the axis includes 1x, so that it does not stretch the axis."""
    shown = {"expr": "inrange(1, domain('y')) ? 1 : 0"}
    mark = {"type": "rule", "strokeDash": [2, 3], "color": GREY, "opacity": shown, "tooltip": None}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {"y": {"value": {"expr": "clamp(scale('y', 1), 0, height)"}}}}


def moment(source: str, name: str) -> Spec:
    """Convert ISO text to a time in the chart itself, so that it does not matter how the rows were loaded."""
    return {"calculate": f"toDate(datum.{source})", "as": name}


def dates(field: str) -> Spec:
    """An axis of dates in UTC, as they are stored, all labelled in one form, even at the beginning of a month."""
    day = "%b %-d"
    forms = {"year": "%b %-d, %Y", "quarter": day, "month": day, "week": day, "date": day, "hours": "%H:%M", "minutes": "%H:%M"}
    axis = {"title": None, "labelOverlap": True, "labelSeparation": 10, "grid": False, "tickCount": 8, "format": forms}
    return {"field": field, "type": "temporal", "scale": {"type": "utc"}, "axis": axis}


def by_name(field: str) -> Spec:
    """One colour per name from the theme's palette, with the legend above in as many columns as fit.

    Points use it as `color` and `shape`, lines beside them as `stroke`, areas as `fill`: a channel that several layers share
    would separate the points' colours from their shapes in the legend.
    """
    columns = {"expr": "max(1, floor((isFinite(containerSize()[0]) ? containerSize()[0] : width) / 200))"}
    legend = {"title": None, "orient": "top", "columns": columns, "labelLimit": 240, "symbolOpacity": 1, "offset": 24}
    return {"field": field, "type": "nominal", "sort": None, "legend": legend}


def names(**more: Any) -> Spec:
    """An axis of names, without a line."""
    return {"title": None, "domain": False, "ticks": False, "labelPadding": 8, **more}


def told(*pairs: tuple[str, str]) -> list[Spec]:
    """A tooltip of named texts, which have unit and uncertainty already in the rows."""
    return [{"field": field, "type": "nominal", "title": title} for field, title in pairs]


def status_text(status: str) -> str:
    """`✗ wrong`, `! failed`, `– unsupported`: a sign and a word, since colour alone is not enough."""
    sign = "✓" if status == "ok" else "✗" if status == "wrong" else "!" if status in BAD else "–"
    return f"{sign} {status.replace('_', ' ')}"
