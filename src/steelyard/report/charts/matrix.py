"""Speedups of models on stacks as a heat map: colour shows the size of an effect, text the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from steelyard.model.record import BAD
from steelyard.model.units import with_error
from steelyard.report.cells import unpaired_words
from steelyard.report.charts import Chart, Rows, vega
from steelyard.report.charts.vega import BLUE, GREY, ORANGE, VERMILION, Spec

COLUMNS = ("row", "column", "row_order", "column_order", "speedup", "low", "high", "measured", "text", "status", "time", "case")
"""Row and column names with their place from 0; speedup over the baseline (above 1 is faster) with its interval, or None;
`measured` is whether both were measured side by side or apart, which is unpaired; `text` is the text of the cell
(`14 % faster [13, 15]`, `✗ wrong`), `time` the time per call with unit and uncertainty as text."""

Speedup = Sequence[Any]
"""Ratio, both ends of its interval, and whether it is paired, as in the document."""

FULL = 4.0
"""A speedup that gets the full colour, as does its inverse; beyond it colours stay the same."""

MOST_ROWS = 100
TOLD = {"text": "against the baseline", "time": "time per call"}
MEASURED = {1: "side by side", 0: "apart", None: ""}
ITSELF = (1.0, None, None, None)
"""The baseline's speedup over itself: 1, without a measurement."""
STEP, ROOM, NARROW = 32, 150, 700
"""In pixels: the height of a row, and the least widths of a cell with its text on one line and of a window with the legend on one line."""


def heat(name: str, title: str, reading: str, rows: Callable[..., Rows]) -> Chart:
    """A table of speedups in blue (faster) and orange (slower), stronger the further from 1x; a cell that is not ok has no colour.

    The colours have an opacity, so the middle of the scale is the colour of the page itself, light or dark.
    """
    faster, slower = "faster than the baseline", "slower than the baseline"
    coloured: list[Spec] = [
        {"filter": "datum.status === 'ok' && isValid(datum.speedup)"},
        {"calculate": f"min(1, abs(log(datum.speedup)) / {math.log(FULL)})", "as": "strength"},
        {"calculate": f"datum.speedup >= 1 ? '{faster}' : '{slower}'", "as": "direction"},
    ]
    bare: Spec = {"title": None, "domain": False, "ticks": False}
    places: Spec = {
        "x": {
            "field": "column",
            "type": "nominal",
            "sort": {"field": "column_order", "op": "min"},
            "scale": {"paddingInner": 0.03},
            "axis": {**bare, "orient": "top", "labelAngle": 0, "labelLimit": {"expr": "bandwidth('x')"}},
        },
        "y": {
            "field": "row",
            "type": "nominal",
            "sort": {"field": "row_order", "op": "min"},
            "scale": {"paddingInner": 0.1},
            "axis": {**bare, "labelLimit": 220},
        },
        "tooltip": vega.told(*((name, TOLD.get(name, name)) for name in ("row", "column", "text", "measured", "time", "status"))),
    }
    columns = {"expr": f"windowSize()[0] < {NARROW} ? 1 : 2"}
    square: Spec = {"symbolType": "square", "symbolOpacity": 0.6, "symbolStrokeWidth": 0}
    legend: Spec = {"title": None, "orient": "bottom", "columns": columns, **square}
    scale = {"domain": [faster, slower], "range": [BLUE, ORANGE]}
    colours: Spec = {
        "color": {"field": "direction", "type": "nominal", "legend": legend, "scale": scale},
        "opacity": {"field": "strength", "type": "quantitative", "legend": None, "scale": {"domain": [0, 1], "range": [0, 0.55]}},
    }
    frame: Spec = {"filled": False, "strokeWidth": 1, "strokeDash": [3, 3], "opacity": 0.8}
    places_and_colours: Spec = {**places, **colours}
    layers = [
        {**vega.layer("rect", places_and_colours, cornerRadius=2), "transform": coloured},
        vega.layer("rect", places, f"indexof({list(BAD)}, datum.status) >= 0", color=VERMILION, **frame),
        vega.layer("rect", places, f"indexof({['ok', *BAD]}, datum.status) < 0", color=GREY, **frame),
        *_words(places),
    ]
    return Chart(name, title, reading, vega.framed(layers, {"step": STEP}), COLUMNS, rows)


def _words(places: Spec) -> list[Spec]:
    """The text of a cell, on one line if there is room, else with its interval on a second line."""
    parts = "split(datum.text, ' [')"
    two = f"bandwidth('x') < {ROOM} && length({parts}) > 1"
    upper, lower = {"expr": f"{two} ? {parts}[0] : datum.text"}, {"expr": f"{two} ? '[' + {parts}[1] : ''"}
    return [
        vega.layer("text", places, fontSize=11, text=upper, dy={"expr": f"{two} ? -6 : 0"}),
        vega.layer("text", places, fontSize=9.5, text=lower, dy=7),
    ]


def matrix_heat_rows(document: dict[str, Any], most: int = MOST_ROWS) -> Rows:
    """The cells of the document's matrix against its own baseline, row by row."""
    matrix = document["matrix"]
    if not matrix:
        return []
    speedups = matrix["by_baseline"][matrix["baseline"]]["speedups"]
    found, said, base = [], compared_words(document), matrix["columns"].index(matrix["baseline"])
    for at, row in enumerate(matrix["rows"][:most]):
        for place, column in enumerate(matrix["columns"]):
            if cell := matrix["cells"][at][place]:
                speedup = ITSELF if column == matrix["baseline"] and speedups[at][place] else speedups[at][place]
                held = matrix["cells"][at][base]
                told = said.get((held["case"], cell["case"]), "") if held and speedup and speedup[3] else ""
                found.append(heat_row(row["name"], column, at, place, cell, speedup, told))
    return found


def effect_words(speedup: float, low: float | None, high: float | None) -> str:
    """The words for a speedup of two cases that are in no comparison, by the same rules."""
    return unpaired_words(speedup, low, high)[1]


def compared_words(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The comparison's effect for each base and head, so that the matrix shows the same words."""
    deltas = (document.get("comparison") or {"deltas": []})["deltas"]
    return {(delta["base"], delta["case"]): delta["effect"] for delta in deltas if delta["metric"] == "time" and delta["ratio"]}


def heat_row(
    row: str, column: str, row_order: int, column_order: int, cell: dict[str, Any], speedup: Speedup | None, told: str = ""
) -> dict[str, Any]:
    """One cell; a speedup is shown only if the answer was right, in the comparison's words if `told` has them."""
    ratio, low, high, paired = speedup if speedup and cell["status"] == "ok" else (None, None, None, None)
    time = with_error(cell["time"][0], cell["time"][1], cell["time"][2], "s") if cell["time"] else ""
    against = "baseline" if paired is None else told or effect_words(ratio, low, high) if ratio else ""
    text = vega.status_text(cell["status"]) if cell["status"] != "ok" else against if ratio else time
    names = {"row": row, "column": column, "row_order": row_order, "column_order": column_order}
    ends = {"speedup": ratio, "low": low, "high": high, "measured": MEASURED[paired]}
    return {**names, **ends, "text": text, "status": cell["status"], "time": time, "case": cell["case"]}


HEAT = heat(
    "matrix-heat",
    "Every stack against the baseline, model by model",
    "Each cell compares this stack's time with the baseline's: blue is faster than the baseline and orange slower, stronger for a larger "
    "effect; a dashed frame is a cell without a right answer, which has no colour.",
    matrix_heat_rows,
)
CHARTS = (HEAT,)
