"""Reports as pictures, PNG or SVG, drawn by matplotlib without a display and without its global state."""

from __future__ import annotations

import importlib.util
import io
import math
from datetime import datetime
from typing import Any

from steelyard.dialects.ptxla.aggregate import Report
from steelyard.dialects.ptxla.rows import printable
from steelyard.errors import UsageError

MARKERS = ("D", "o", "s", "v", "x", "+")
STYLES = ("solid", "dotted", "dashed", "dashdot")
ALIGNMENTS = (("bottom", "left"), ("top", "right"))
ERROR_LINE: dict[str, Any] = {"elinewidth": 0.5, "capsize": 3}
GROUP = 0.70
LARGEST = 200.0


def draw(report: Report, form: str, title: str = "", width: float = 9.0, height: float = 6.75) -> bytes:
    """The picture's bytes; width and height in inches."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"cannot draw {form}", why="matplotlib is not installed", do="pip install 'steelyard[plots]', or --format ascii")
    if not (0 < width <= LARGEST and 0 < height <= LARGEST):
        raise UsageError(
            f"a picture of {width:g} by {height:g} inches cannot be drawn", do=f"use more than 0 and up to {LARGEST:g} inches a side"
        )
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "steelyard", "text.parse_math": False}):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        {"latest": _latest, "latest_grouped": _grouped}.get(report.question.report, _over_time)(report, axes)
        axes.set_title("\n".join([report.question.heading, *([printable(title)] if title else [])]))
        axes.legend()
        found = io.BytesIO()
        figure.savefig(found, format=form, metadata={"Date": None} if form == "svg" else None)
    return found.getvalue()


def _over_time(report: Report, axes: Any) -> None:
    """Geometric means with error bars, or percentiles, by date."""
    from matplotlib import dates

    axes.axhline(y=1.0, color="lightgray")
    moments = [place for place in report.places if isinstance(place, datetime)]
    backends = list(dict.fromkeys(line.backend for line in report.lines))
    for line in report.lines:
        number = backends.index(line.backend)
        values = [point.value if point else math.nan for point in line.points]
        marker = MARKERS[number % len(MARKERS)]
        if report.question.report == "histogram":
            axes.plot(moments, values, label=line.label, marker=marker, linestyle=STYLES[number % len(STYLES)])
        else:
            errors = [point.std if point else math.nan for point in line.points]
            axes.errorbar(moments, values, errors, label=line.label, marker=marker, **ERROR_LINE)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(axes.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    axes.set_xlabel("Date")
    axes.set_ylabel("Geomean Speedup" if report.question.report == "speedup" else "Speedup")


def _latest(report: Report, axes: Any) -> None:
    """Models in order of speedup, each with its name; names of neighbouring lines go to opposite sides."""
    axes.axhline(y=1.0, color="lightgray")
    for number, line in enumerate(report.lines):
        points = [point for point in line.points if point]
        marker = MARKERS[number % len(MARKERS)]
        values, errors = [point.value for point in points], [point.std for point in points]
        axes.errorbar(range(len(points)), values, errors, label=line.label, marker=marker, **ERROR_LINE)
        vertical, horizontal = ALIGNMENTS[number % len(ALIGNMENTS)]
        for place, (name, point) in enumerate(zip(line.names, points, strict=False)):
            axes.annotate(
                printable(name or ""), (place, point.value), rotation=45, size=5.0, alpha=0.5, verticalalignment=vertical,
                horizontalalignment=horizontal, parse_math=False,
            )  # fmt: skip
    axes.set_xlabel("Workload Number")
    axes.set_ylabel("Speedup")


def _grouped(report: Report, axes: Any) -> None:
    """Horizontal bars, a group per model, from the top down."""
    axes.axvline(x=1.0, color="lightgray")
    names = [printable(str(place)) for place in report.places]
    thick = GROUP / len(report.lines)
    tops = [len(names) - number for number in range(len(names))]
    for number, line in enumerate(report.lines):
        values = [round(point.value, 2) if point else math.nan for point in line.points]
        errors = [point.std if point else math.nan for point in line.points]
        bars = axes.barh([top - thick * number for top in tops], values, thick, label=line.label, xerr=errors)
        axes.bar_label(bars)
    axes.set_yticks([top - (len(report.lines) - 1) * thick / 2 for top in tops], names)
    axes.margins(y=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("Speedup")
    axes.set_ylabel("Workload")
