"""A case over time on a terminal: a line of bars, and one line for each change of level."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.text import Text

from steelyard.analyze.change_points import FEWEST
from steelyard.analyze.history import MOST_READ, Change, History
from steelyard.model import effects
from steelyard.model.units import plain, with_error
from steelyard.report.cells import clean
from steelyard.report.page import joined, wrap_spaced, wrapped
from steelyard.report.wrap import wrap_facts

BARS = "▁▂▃▄▅▆▇█"
COMMIT = 10


def sparkline(values: Sequence[float], width: int) -> str:
    """A bar per value, scaled from the least to the largest; if there are too many values, a bar for each median of several."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    groups = [values[len(values) * place // count : len(values) * (place + 1) // count] for place in range(count)]
    centres = [statistics.median(group) for group in groups]
    low, span = min(centres), max(centres) - min(centres)
    return "".join(BARS[min(7, int(8 * ((centre - low) / span)))] if span > 0 else BARS[3] for centre in centres)


def marks(history: History, width: int) -> str:
    """A mark below the first bar of each new level."""
    count = min(width, len(history.points))
    line = [" "] * count
    for change in history.changes:
        line[min(count - 1, -(-change.index * count // len(history.points)))] = "^"
    return "".join(line).rstrip()


def commits_text(change: Change) -> str:
    """`a1b2c3d4e5..f6a7b8c9d0`: from the last commit at the old level to the first at the new one."""
    dirty = " with uncommitted changes" if change.dirty else ""
    if not change.last or not change.first:
        return f"commit {(change.last or change.first)[:COMMIT]} on one side only" if change.last or change.first else "commits unknown"
    if change.last == change.first:
        return f"same commit {change.last[:COMMIT]}{dirty}"
    return f"{change.last[:COMMIT]}..{change.first[:COMMIT]}{dirty}"


def change_line(change: Change) -> str:
    """One change in a line: its time, both levels, its size, and the commits around it."""
    sign = "▼" if change.ratio > 1 else "▲"
    by = effects.change(change.ratio, change.low, change.high)
    return f"{sign} {day(change.created)}  {level(change.before)} → {level(change.after)}  {by}  {commits_text(change)}"


def day(created: str) -> str:
    """The date and the minute of a stored time."""
    return clean(created[:16].replace("T", " "))


def level(seconds: float) -> str:
    """A time with four digits, so that levels a few percent apart do not look the same."""
    return plain(seconds, "s", 4)


def history_page(history: History, *, width: int = 100) -> Text:
    """The series, its changes, and what was left out; every line fits the width."""
    lines = [*wrapped(clean(history.case), width, "bold"), *wrapped(_scope(history), width, "dim")]
    lines += [Text(line, "dim") for line in wrap_facts(_conditions(history), width) if line]
    times = [point.time for point in history.points]
    if times:
        room, last = width - 2, history.points[-1]
        lines += [Text(""), Text(f"  {sparkline(times, room)}"), Text(f"  {marks(history, room)}", "dim")]
        lines.append(Text(f"  {level(min(times))} to {level(max(times))}, newest {with_error(last.time, last.low, last.high, 's')}", "dim"))
    lines += [Text(""), Text(_found(history), "bold")]
    for change in history.changes:
        style = "red" if change.ratio > 1 else "green"
        first, *rest = wrap_spaced(change_line(change), width - 4)
        lines += [Text(f"  {first}", style), *(Text(f"    {line}", style) for line in rest)]
        if change.others:
            lines += wrapped(f"also changed: {', '.join(clean(word) for word in change.others)}", width, "dim", "    ")
    return joined([*lines, *(line for note in _notes(history) for line in wrapped(note, width, "dim"))])


def _scope(history: History) -> str:
    count = f"{len(history.points)} run{'' if len(history.points) == 1 else 's'}"
    span = f" · {day(history.points[0].created)} to {day(history.points[-1].created)}" if history.points else ""
    return f"{count} on machine {clean(history.machine_key) or 'unknown'}{span}"


def _conditions(history: History) -> str:
    newest = f"newest {MOST_READ} " if len(history.points) > MOST_READ else ""
    return f"{newest}with {history.conditions.text}" if history.conditions else ""


def _found(history: History) -> str:
    if history.changes:
        return f"{len(history.changes)} change{'' if len(history.changes) == 1 else 's'} of level"
    few = len(history.points) < FEWEST
    return f"no change of level found{f'; fewer than {FEWEST} runs cannot show one' if few else ''}"


def _notes(history: History) -> list[str]:
    notes = []
    if history.searched < len(history.points):
        notes.append(f"only the newest {history.searched} runs were searched for changes")
    if history.broken:
        notes.append(f"{history.broken} record{'' if history.broken == 1 else 's'} left out: not ok, or without a time")
    for other in history.apart:
        notes.append(f"not shown: {other.points} on machine {clean(other.machine_key) or 'unknown'}, newest {day(other.created)}")
    return notes
