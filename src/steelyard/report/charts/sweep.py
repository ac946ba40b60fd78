"""A metric over one parameter, a line per variant with its interval as a band, and the speedups of the same points as a heat map."""

from __future__ import annotations

from functools import partial
from typing import Any

from steelyard.model.units import with_error
from steelyard.report.charts import ROWS, Chart, Rows, vega
from steelyard.report.charts.matrix import ITSELF, Speedup, compared_words, heat, heat_row
from steelyard.report.charts.vega import VERMILION, Spec

COLUMNS = ("x", "order", "line", "value", "low", "high", "unit", "metric", "axis", "status", "text", "case")
"""`x` is the parameter's value (a number, or a name with its place in `order`), `line` the variant, `value` the metric in SI units with its
interval; `unit`, `metric` (in words) and `axis` are the same in all rows; `text` is the value with its unit."""

SPEEDUP = ("x", "order", "line", "speedup", "low", "high", "axis", "over", "measured", "text", "status", "case")
"""Baseline time over own time at each value of the parameter, with its interval, if both are right; `over` names the baseline."""

MOST_TICKS = 40
MOST_LINES = 7
"""The most lines in one picture, since there are seven colours."""
WIDE_X, WIDE_Y = 8.0, 5.0
"""An axis is logarithmic if its largest value is at least this many times its smallest."""


def lines(x: str, y: str) -> Chart:
    """One line per variant; `x` is log, linear or names, `y` log or linear."""
    across, up = _across(x), _up(y)
    aside: Spec = {"xOffset": {"field": "line", "sort": None}} if x == "names" else {}
    name = vega.by_name("line")
    place: Spec = {"x": across, "y": up, **aside}
    ends: Spec = {**place, "y": {**up, "field": "from"}, "y2": {"field": "to"}}
    tooltip = vega.told(("line", "variant"), ("axis", "axis"), ("x", "at"), ("metric", "metric"), ("text", "value"), ("status", "status"))
    crossed = vega.layer("point", {**place, "tooltip": tooltip}, "datum.status !== 'ok' && isValid(datum.value)", **CROSS)
    bars = [vega.layer("rule", {**ends, "stroke": name}, strokeWidth=2)]
    band = vega.layer("area", {**ends, "fill": name}, opacity=0.18, line=False)
    ribbon = [band, vega.layer("line", {**place, "stroke": name}, strokeWidth=1.75)]
    layers = [
        *(bars if x == "names" else ribbon),
        vega.layer("point", {**place, "color": name, "shape": name, "tooltip": tooltip}, **DOT),
        {"data": {"name": ROWS}, **crossed},
        *vega.captions(vega.first("metric"), vega.first("axis")),
    ]
    sound: list[Spec] = [{"filter": "datum.status === 'ok' && isValid(datum.value)"}, *vega.ends_of("value")]
    spec = vega.framed(layers, 320, params=[{"name": "ticks", "value": None}], transform=sound)
    return Chart(f"sweep-{x}-{y}", "Metric over a parameter", _reading(x, y), spec, COLUMNS, partial(_first_if, x, y))


def speedup_lines(x: str) -> Chart:
    """Each variant's speedup over the baseline by parameter, to show differences of a few percent that are invisible on an axis of
    times."""
    name, up = vega.by_name("line"), vega.speedups("speedup")
    place: Spec = {"x": _across(x), "y": up}
    ends: Spec = {**place, "y": {**up, "field": "from"}, "y2": {"field": "to"}}
    tooltip = vega.told(("line", "variant"), ("axis", "axis"), ("x", "at"), ("text", "against the baseline"), ("measured", "measured"))
    layers = [
        vega.layer("area", {**ends, "fill": name}, opacity=0.18, line=False),
        vega.layer("line", {**place, "stroke": name}, strokeWidth=1.75),
        vega.layer("point", {**place, "color": name, "shape": name, "tooltip": tooltip}, **DOT),
        vega.even(),
        *vega.captions(f"'times as fast as ' + {vega.first('over')}", vega.first("axis")),
    ]
    sound: list[Spec] = [{"filter": "isValid(datum.speedup)"}, *vega.ends_of("speedup")]
    spec = vega.framed(layers, 320, params=[{"name": "ticks", "value": None}], transform=sound)
    reading = (
        "How many times as fast as the baseline each variant is: above 1× it is faster, below it slower; bands are intervals, and where a "
        "band includes 1× the difference is unclear."
    )
    return Chart(f"sweep-speedup-{x}", "Speedup over a parameter", reading, spec, SPEEDUP, partial(_speedups_if, x))


DOT: Spec = {"filled": True, "size": 46, "opacity": 1, "cursor": "pointer"}
CROSS: Spec = {"shape": "M-1,-1L1,1M-1,1L1,-1", "color": VERMILION, "strokeWidth": 2, "size": 60, "opacity": 1, "cursor": "pointer"}


def _across(x: str) -> Spec:
    if x == "names":
        axis: Spec = {"title": None, "labelAngle": 0, "labelLimit": 120}
        return {"field": "x", "type": "nominal", "sort": {"field": "order", "op": "min"}, "scale": {"paddingInner": 0.5}, "axis": axis}
    text = "abs(datum.value) >= 1e6 ? format(datum.value, '~s') : format(datum.value, ',~r')"
    axis = vega.log_axis("x", text) if x == "log" else {"title": None, "labelExpr": text, "labelOverlap": "greedy", "tickCount": 6}
    given = f"isValid(ticks) ? {text} : {axis['labelExpr']}"
    chosen = {"values": {"expr": "ticks"}, "tickCount": {"expr": f"isValid(ticks) ? {MOST_TICKS} : 6"}, "labelExpr": given, "grid": False}
    scale = {"type": x, "nice": False, "padding": 14, **({} if x == "log" else {"zero": False})}
    return {"field": "x", "type": "quantitative", "scale": scale, "axis": {**axis, **chosen}}


def _up(y: str) -> Spec:
    text = vega.with_prefix("datum.value", vega.first("unit"))
    axis: Spec = vega.log_axis("y", text) if y == "log" else {"title": None, "labelExpr": text, "tickCount": 6}
    scale: Spec = {"type": y, "nice": False} if y == "log" else {"type": y, "nice": True, "zero": False}
    return {"field": "value", "type": "quantitative", "scale": scale, "axis": axis}


def _reading(x: str, y: str) -> str:
    shown = "bars" if x == "names" else "bands"
    words = f"One colour and shape per variant; {shown} are 95 % intervals, and crosses are points without a right answer"
    growing = {("log", "log"): "both axes are", ("log", "linear"): "the horizontal axis is"}.get((x, y), "the vertical axis is")
    return f"{words}; {growing} logarithmic." if "log" in (x, y) else f"{words}."


def sweep_rows(document: dict[str, Any], sweep: dict[str, Any], metric: str) -> Rows:
    """The points of one sweep that have the metric, line by line."""
    about = document["metrics"].get(metric, {"unit": "", "label": metric})
    cases = {case["id"]: case for case in document["cases"]}
    common = {"unit": about["unit"], "metric": about["label"], "axis": sweep["axis"]}
    found = []
    for line in sweep["lines"]:
        for order, point in enumerate(line["points"]):
            case = cases.get(point["case"])
            if case and (figure := case["metrics"].get(metric)) and figure[0] is not None:
                value, low, high = figure[:3]
                row = {"x": point["x"], "order": order, "line": line["name"], "value": value, "low": low, "high": high, **common}
                text = with_error(value, low, high, about["unit"])
                found.append({**row, "status": case["status"], "text": text, "case": case["id"]})
    return found


def fitting(rows: Rows, kind: str) -> tuple[str, str]:
    """The axes that suit the rows: logarithmic if the values span a wide range and all are above zero."""
    across = [row["x"] for row in rows]
    up = [row["value"] for row in rows]
    x = "names" if kind == "name" else "log" if _wide(across, WIDE_X) else "linear"
    return x, "log" if _wide(up, WIDE_Y) else "linear"


def _wide(values: list[float], quotient: float) -> bool:
    return bool(values) and min(values) > 0 and max(values) >= quotient * min(values)


def _first_if(x: str, y: str, document: dict[str, Any]) -> Rows:
    """The times of the first sweep and of those drawn with it; empty if other axes suit them, so that only one chart draws the picture."""
    found = together(document["sweep"] or [])
    rows = [row for sweep in found for row in sweep_rows(document, sweep, "time")]
    return rows if found and fitting(rows, found[0]["kind"]) == (x, y) else []


def together(sweeps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first sweep, and those that differ from it only in fixed parameters, such as the dtype, so that one picture can show them.

    A line is named by its stack and by the fixed parameters that not all sweeps share. There are at most MOST_LINES lines.
    """
    kin = [sweep for sweep in sweeps if all(sweep[name] == sweeps[0][name] for name in ("workload", "axis", "kind", "mode"))]
    while len(kin) > 1 and sum(len(sweep["lines"]) for sweep in kin) > MOST_LINES:
        kin.pop()
    words = [sweep["fixed"].split() for sweep in kin]
    own = [" ".join(word for word in held if not all(word in other for other in words)) for held in words]
    return [
        {**sweep, "lines": [{**line, "name": f"{line['name']} {held}".strip()} for line in sweep["lines"]], "baseline": _named(sweep, held)}
        for sweep, held in zip(kin, own, strict=True)
    ]


def _named(sweep: dict[str, Any], held: str) -> str | None:
    return f"{sweep['baseline']} {held}".strip() if sweep["baseline"] else None


def left_out(document: dict[str, Any], rows: Rows) -> str:
    """How many measured points of the document's sweeps a picture of some rows does not show; empty if it shows all."""
    timed = {case["id"] for case in document["cases"] if case["metrics"].get("time")}
    points = {point["case"] for sweep in document["sweep"] or [] for line in sweep["lines"] for point in line["points"]} & timed
    missing = points - {row["case"] for row in rows}
    return f"{len(missing)} of {len(points)} measured points belong to other sweeps and are not in this picture" if missing else ""


def sweep_heat_rows(document: dict[str, Any]) -> Rows:
    """Baseline time over own time at every point of the first sweep that has a baseline, and of the sweeps drawn with it."""
    kin, found = together([sweep for sweep in document["sweep"] or [] if sweep["baseline"]]), list[dict[str, Any]]()
    columns = {x: place for place, x in enumerate(dict.fromkeys(x for sweep in kin for x in _values(sweep)))}
    for sweep in kin:
        found += _heat_rows(document, sweep, columns, len({row["row"] for row in found}))
    return found


def speedup_rows(document: dict[str, Any], sweep: dict[str, Any]) -> Rows:
    """The speedups of one sweep, line by line; the baseline is included as the line at 1, so that each variant keeps its colour."""
    values = _values(sweep)
    cells = _heat_rows(document, sweep, {x: place for place, x in enumerate(values)}, 0)
    shared = {"axis": sweep["axis"], "over": sweep["baseline"]}
    return [
        {"x": values[cell["column_order"]], "order": cell["column_order"], "line": cell["row"], **shared,
         **{name: cell[name] for name in ("speedup", "low", "high", "measured", "text", "status", "case")}}
        for cell in cells
        if cell["speedup"] is not None
    ]  # fmt: skip


def _speedups_if(x: str, document: dict[str, Any]) -> Rows:
    """The speedups of the first sweep over numbers that has a baseline, and of those drawn with it; empty if another axis suits them."""
    kin = together([sweep for sweep in document["sweep"] or [] if sweep["baseline"] and sweep["kind"] == "number"])
    rows = [row for sweep in kin for row in speedup_rows(document, sweep)]
    if all(row["line"] == row["over"] for row in rows):
        return []
    across = [value for sweep in kin for value in _values(sweep)]
    return rows if rows and x == ("log" if _wide(across, WIDE_X) else "linear") else []


def _heat_rows(document: dict[str, Any], sweep: dict[str, Any], places: dict[Any, int], above: int) -> Rows:
    """The rows of one sweep in a heat map, numbered from `above`."""
    cases, weighed = {case["id"]: case for case in document["cases"]}, _weighed(document.get("matrix"))
    base = {
        point["x"]: cases.get(point["case"]) for line in sweep["lines"] if line["name"] == sweep["baseline"] for point in line["points"]
    }
    found, said = [], compared_words(document)
    for at, line in enumerate(sweep["lines"], above):
        for point in line["points"]:
            if case := cases.get(point["case"]):
                cell = {"case": case["id"], "status": case["status"], "time": case["metrics"].get("time")}
                held = base.get(point["x"])
                speedup = weighed.get((held["id"], case["id"])) if held and held is not case else None
                told = said.get((held["id"], case["id"]), "") if held and speedup else ""
                row = heat_row(line["name"], str(point["x"]), at, places[point["x"]], cell, speedup or _quotient(held, case), told)
                found.append(row)
    return found


def _values(sweep: dict[str, Any]) -> list[Any]:
    """The values on the axis of a sweep; a single line may lack some."""
    found = dict.fromkeys(point["x"] for line in sweep["lines"] for point in line["points"])
    return sorted(found) if sweep["kind"] == "number" else list(found)


def _weighed(matrix: dict[str, Any] | None) -> dict[tuple[str, str], Speedup]:
    """The speedups in the matrix that were measured side by side, by the ids of both cases."""
    found: dict[tuple[str, str], Speedup] = {}
    if matrix is None:
        return found
    for name, against in matrix["by_baseline"].items():
        base = matrix["columns"].index(name)
        for cells, speedups in zip(matrix["cells"], against["speedups"], strict=True):
            pairs = zip(cells, speedups, strict=True)
            found |= {(cells[base]["case"], cell["case"]): speedup for cell, speedup in pairs if cell and speedup and speedup[3]}
    return found


def _quotient(base: dict[str, Any] | None, case: dict[str, Any]) -> Speedup | None:
    """The speedup of two separate measurements, with the widest interval that theirs allow."""
    before, after = (item["metrics"].get("time") if item and item["status"] == "ok" else None for item in (base, case))
    if not before or not after or not before[0] or not after[0]:
        return None
    if base is case:
        return ITSELF
    bounds = [before[1] / after[2], before[2] / after[1]] if all((*before[1:3], *after[1:3])) else [None, None]
    return [before[0] / after[0], *bounds, 0]


SPEEDUPS = heat(
    "sweep-heat",
    "Speedup over the baseline at every point",
    "Each cell is this variant against the baseline at this value: blue is better and orange worse, stronger for a larger "
    "change; a dashed frame is a point without a right answer.",
    sweep_heat_rows,
)
LINES = tuple(lines(x, y) for x in ("log", "linear", "names") for y in ("log", "linear"))
OVER = tuple(speedup_lines(x) for x in ("log", "linear"))
CHARTS = (*LINES, *OVER, SPEEDUPS)
