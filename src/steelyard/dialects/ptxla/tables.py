"""Reports as text: the original's csv and tab to the byte, and charts of plain characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from steelyard.dialects.ptxla.aggregate import Report, ReportLine
from steelyard.dialects.ptxla.rows import printable

PLACES = {"speedup": "Datetime(UTC)", "histogram": "Datetime(UTC)", "latest": "Workload", "latest_grouped": "ModelName"}
AXES = {"speedup": "Date", "histogram": "Date", "latest": "Workload Number"}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SEVERAL = "*"
HEIGHT, MARGIN, NARROWEST = 17, 9, 40
MOST_TICKS = 8
Column = tuple[str, Sequence[Any]]


def csv(report: Report) -> str:
    """Return CSV with headings after a `#`; missing values are empty cells."""
    columns = _columns(report, multi_line=False)
    heads = ",".join(head for head, _ in columns)
    rows = zip(*(cells for _, cells in columns), strict=True)
    return "".join(f"{line}\n" for line in (f"# {heads}", *(",".join(map(_cell, row)) for row in rows)))


def _cell(value: Any) -> str:
    """Return the text of a cell, in quotes if it has a comma or a quote."""
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def tab(report: Report) -> str:
    """Return a grid with two decimals."""
    from tabulate import tabulate  # type: ignore[import-untyped]

    columns = _columns(report, multi_line=True)
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    return f"{tabulate(rows, headers=[head for head, _ in columns], tablefmt='fancy_grid', floatfmt='.2f')}\n"


def _columns(report: Report, multi_line: bool) -> list[Column]:
    found: list[Column] = [(PLACES[report.question.report], [_place(place) for place in report.places])]
    for number, line in enumerate(report.lines):
        last = number + 1 == len(report.lines) or report.lines[number + 1].backend != line.backend
        found += _columns_of(line, report, multi_line)
        if report.question.paired and report.question.report != "latest" and (last or report.question.report != "histogram"):
            counts = [point.n if point else None for point in line.points]
            found += [("N", counts), ("Passed", line.passed)]
    return found


def _columns_of(line: ReportLine, report: Report, multi_line: bool) -> list[Column]:
    values = [point.rounded[0] if point else None for point in line.points]
    if report.question.report == "histogram":
        return [(line.label.replace(" ", "\n") if multi_line else line.label, values)]
    over = report.question.over
    head = "\n".join(("Speedup", line.label, "over", *over.split(" "))) if multi_line else f"Speedup({line.label}/{over})"
    found: list[Column] = [(head, values), ("StdDev", [point.rounded[1] if point else None for point in line.points])]
    if line.names:
        names = [None if name is None else printable(name) for name in line.names]
        found.append((f"ModelName\n{line.label}" if multi_line else f"ModelName({line.label})", names))
    return found


def _place(place: datetime | int | str) -> int | str:
    return place if isinstance(place, int) else printable(str(place))


def ascii_chart(report: Report, title: str = "", width: int = 100) -> str:
    """Return the report as a chart of letters and bars; a star marks where several lines meet."""
    head = [report.question.heading, *([printable(title)] if title else [])]
    drawn = _bars(report, width) if report.question.report == "latest_grouped" else _plot(report, max(width, NARROWEST))
    return "".join(f"{line.rstrip()}\n" for line in (*(text.center(width) for text in head), *drawn))


def _plot(report: Report, width: int) -> list[str]:
    across = width - MARGIN - 3
    places = _positions(report.places, across)
    values = [point.value for line in report.lines for point in line.points if point]
    ticks = _ticks(min([1.0, *values]), max([1.0, *values]))
    low, high = ticks[0], ticks[-1]

    def height(value: float) -> int:
        return round((value - low) / (high - low) * (HEIGHT - 1))

    grid = [[" "] * across for _ in range(HEIGHT)]
    grid[height(1.0)] = ["-"] * across
    for letter, line in zip(LETTERS * (1 + len(report.lines) // 26), report.lines, strict=False):
        for place, point in zip(places, line.points, strict=True):
            if point:
                row = grid[height(point.value)]
                row[place] = letter if row[place] in (" ", "-", letter) else SEVERAL
    labels = {height(tick): f"{tick:g}" for tick in ticks}
    border = f"{'':{MARGIN}} +{'-' * across}+"
    body = [f"{labels.get(row, ''):>{MARGIN}} |{''.join(grid[row])}|" for row in reversed(range(HEIGHT))]
    legend = [f"{'':{MARGIN}}  {letter} {line.label}" for letter, line in zip(LETTERS * 99, report.lines, strict=False)]
    if any(SEVERAL in row for row in body):
        legend.append(f"{'':{MARGIN}}  {SEVERAL} several")
    return [border, *body, border, _ends(report.places, across), AXES[report.question.report].center(width), *legend]


def _positions(places: Sequence[datetime | int | str], across: int) -> list[int]:
    """Return the columns of places: moments by their distance in time, numbers one after another."""
    at = [place.timestamp() if isinstance(place, datetime) else float(number) for number, place in enumerate(places)]
    if not at or at[0] == at[-1]:
        return [across // 2] * len(at)
    return [1 + round((value - at[0]) / (at[-1] - at[0]) * (across - 3)) for value in at]


def _ends(places: Sequence[datetime | int | str], across: int) -> str:
    texts = [str(place.date()) if isinstance(place, datetime) else str(place) for place in places]
    if not texts:
        return ""
    inner = texts[0].center(across) if len(set(texts)) == 1 else f"{texts[0]}{texts[-1]:>{across - len(texts[0])}}"
    return f"{'':{MARGIN}}  {inner}"


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from at or below the lowest to at or above the highest."""
    if low == high:
        low, high = 0.0, 2 * high
    rough = (high - low) / (MOST_TICKS - 2)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{number * step:.12g}") for number in range(first, max(last, first + 1) + 1)]


def _bars(report: Report, width: int) -> list[str]:
    """Return a group of bars per model; the mark is at 1."""
    names = [printable(str(place), 40) for place in report.places]
    label = max([len(line.label) for line in report.lines], default=0)
    longest = max([len(name) for name in names], default=0)
    room = max(10, width - longest - label - 14)
    most = max([1.0, *(point.value for line in report.lines for point in line.points if point)])
    mark = min(room - 1, int(room / most))
    drawn = []
    for number, name in enumerate(names):
        for line in report.lines:
            point = line.points[number]
            bar = ("=" * round(room * point.value / most) if point else "").ljust(room)
            bar = f"{bar[:mark]}|{bar[mark + 1 :]}"
            value = f"{point.value:10.2f}" if point else f"{'-':>10}"
            drawn.append(f"{name if line is report.lines[0] else '':<{longest}}  {line.label:<{label}}{value} {bar}")
    return drawn
