"""Results as an interactive session shows them: small tables and pictures, plain dictionaries, data frames, and the progress of a run."""

from __future__ import annotations

import importlib
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.pair import ALPHA
from steelyard.model.record import Figure, Record
from steelyard.model.units import percent, plain, with_error
from steelyard.report.cells import VERDICT_GLYPHS, brief, clean, status_words, verified_mark
from steelyard.report.columns import pairs_by_head
from steelyard.report.progress import Progress, is_live
from steelyard.report.text import run_table
from steelyard.store.runs import Run

FRAMES = ("pandas", "polars")
WIDE, TALL, EDGE = 150, 14, 5
CELL = "padding:2px 10px;text-align:left;white-space:nowrap"
MOST_DOTS, LABEL = 400, 80


def frame(rows: Sequence[Mapping[str, Any]], library: str | None = None) -> Any:
    """Rows as a data frame of pandas or polars: the named library, else the one in use, else the first installed."""
    if library is not None and library not in FRAMES:
        raise UsageError(f"no data frame library named {library!r}", do=f"name one of {', '.join(FRAMES)}")
    for name in [library] if library else sorted(FRAMES, key=lambda name: name not in sys.modules):
        try:
            made: Any = importlib.import_module(name)
        except ImportError:
            continue
        return made.DataFrame(list(rows))
    raise UsageError(
        f"cannot make a data frame: {library or ' or '.join(FRAMES)} is not installed",
        do=f"pip install {library or FRAMES[0]}, or use to_dict()",
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the cells are HTML already, the heads plain text."""
    top = "".join(f"<th style='{CELL};font-weight:600'>{escape(head)}</th>" for head in heads)
    body = "".join("<tr>" + "".join(f"<td style='{CELL}'>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table style='border-collapse:collapse'><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def dots(values: Sequence[float], figure: Figure) -> str:
    """An SVG of the samples in the order in which they were taken, with the interval of the median behind them."""
    step = max(1, math.ceil(len(values) / MOST_DOTS))
    shown = list(values[::step])
    if len(shown) < 2:
        return ""
    ends = [end for end in (figure.low, figure.high) if end is not None]
    low, high = min([*shown, *ends]), max([*shown, *ends])
    width, height = 320, 60

    def y(value: float) -> float:
        return round(height - EDGE - (height - 2 * EDGE) * (value - low) / ((high - low) or 1), 1)

    def x(at: int) -> float:
        return round(EDGE + (width - 2 * EDGE) * at / (len(shown) - 1), 1)

    told = f"{len(values)} samples in order, {with_error(figure.value, figure.low, figure.high, figure.unit)}"
    band = ""
    if len(ends) == 2:
        tall = max(1.0, y(ends[0]) - y(ends[1]))
        band = f"<rect x='0' width='{width}' y='{y(ends[1])}' height='{tall:.1f}' fill='currentColor' opacity='.15'/>"
    marks = "".join(f"<circle cx='{x(at)}' cy='{y(value)}' r='1.6'/>" for at, value in enumerate(shown))
    return (
        f"<svg role='img' aria-label='{escape(told, quote=True)}' width='{width + LABEL}' height='{height}'>{band}"
        f"<g fill='currentColor' opacity='.6'>{marks}</g><g fill='currentColor' font-size='11'>"
        f"<text x='{width + EDGE}' y='11'>{escape(plain(high, figure.unit))}</text>"
        f"<text x='{width + EDGE}' y='{height - 3}'>{escape(plain(low, figure.unit))}</text></g></svg>"
    )


@dataclass(frozen=True)
class Reach:
    """The logarithmic axis that all bars of a table share."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Reach | None:
        """An axis from the smallest to the largest positive value; None if there is none."""
        known = [value for value in values if value > 0 and math.isfinite(value)]
        return cls(min(known), max(known)) if known else None

    def x(self, value: float) -> float:
        """The position of a value, in pixels."""
        span = math.log(self.high / self.low) or 1.0
        return round(EDGE + (WIDE - 2 * EDGE) * math.log(value / self.low) / span, 1)


def bar(reach: Reach | None, value: float | None, low: float | None, high: float | None, *, even: bool = False) -> str:
    """An SVG of a value with its interval on the table's axis; `even` adds a line at a ratio of 1."""
    if reach is None or not value or value <= 0:
        return ""
    lines = [f"<line x1='{reach.x(1)}' x2='{reach.x(1)}' y1='0' y2='{TALL}' stroke='currentColor' stroke-dasharray='2 2'/>"] if even else []
    if low and high and low > 0:
        lines.append(f"<line x1='{reach.x(low)}' x2='{reach.x(high)}' y1='7' y2='7' stroke='currentColor' stroke-width='3' opacity='.5'/>")
    made = f"{''.join(lines)}<circle cx='{reach.x(value)}' cy='7' r='3' fill='currentColor'/>"
    return f"<svg aria-hidden='true' width='{WIDE}' height='{TALL}'>{made}</svg>"


@dataclass(frozen=True, repr=False)
class ShownRun(Run):
    """A run that reads as one line in Python and as a table with pictures in a notebook."""

    def __repr__(self) -> str:
        counts = Counter(record.status for record in self.records)
        told = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items()) or "nothing measured"
        return f"<Run {self.id}: {told}; steelyard show {self.id}>"

    def __str__(self) -> str:
        return run_table(self.header, self.records, self.pairs).plain

    def to_dict(self) -> dict[str, Any]:
        """The run as plain data: a row for each record, with its figures in SI units and the effect where it was compared."""
        return {
            "run": self.id, "created": self.header.created, "command": list(self.header.command), "machine": dict(self.header.machine),
            "cases": self._rows(),
        }  # fmt: skip

    def to_frame(self, library: str | None = None) -> Any:
        """The same rows as a data frame of pandas or polars."""
        rows = self._rows()
        names = dict.fromkeys(name for row in rows for name in row)
        return frame([{name: row.get(name) for name in names} for row in rows], library)

    def _rows(self) -> list[dict[str, Any]]:
        deltas = pairs_by_head(self.pairs, self.records)[0]
        found = []
        for number, record in enumerate(self.records, 1):
            row: dict[str, Any] = {"number": number, "case": record.id, "status": record.status, "reason": record.reason}
            row |= {name: record.case.get(name) for name in ("workload", "backend", "variant", "mode", "device", "threads")}
            row |= {f"param.{name}": value for name, value in (record.case.get("params") or {}).items()}
            for name, figure in record.metrics.items():
                row |= {name: figure.value} | {
                    f"{name}_{end}": value for end, value in (("low", figure.low), ("high", figure.high)) if value is not None
                }
            if delta := deltas.get(record.id):
                row |= {"base": delta.base, "verdict": delta.verdict, "effect": delta.effect}
                row |= {"time_ratio": delta.ratio, "time_ratio_low": delta.low, "time_ratio_high": delta.high}
            found.append(row)
        return found

    def _repr_html_(self) -> str:
        if not self.records:
            return f"<div>{escape(repr(self))}</div>"
        deltas, bases = pairs_by_head(self.pairs, self.records)
        times = Reach.of(end for item in self.records for end in _ends(item.metrics.get("time")))
        ratios = Reach.of([1.0, *(end for delta in deltas.values() for end in (delta.low, delta.high, delta.ratio) if end)])
        rows = []
        for number, record in enumerate(self.records, 1):
            time, delta = record.metrics.get("time"), deltas.get(record.id)
            told = escape(with_error(time.value, time.low, time.high, time.unit)) if time else ""
            state = verified_mark(record) if record.status == "ok" else escape(f"{status_words(record)} {clean(record.reason)[:80]}")
            versus = escape(f"{VERDICT_GLYPHS[delta.verdict]} {delta.effect}") if delta else "base" if record.id in bases else ""
            picture = bar(times, time.value, time.low, time.high) if time else ""
            row = [str(number), escape(_name(record)), told, picture]
            row += [versus, bar(ratios, delta.ratio, delta.low, delta.high, even=True) if delta else ""] if deltas else []
            rows.append([*row, state])
        effect = [f"time vs base, {percent(1 - ALPHA)}", ""] if deltas else []
        made = table(["#", "case", "median ± 95 %", "", *effect, "verified"], rows)
        return f"<div>{made}<div style='opacity:.7'>{escape(repr(self)[1:-1])}</div></div>"


def _ends(figure: Figure | None) -> list[float]:
    return [end for end in (figure.value, figure.low, figure.high) if end is not None] if figure else []


def _name(record: Record) -> str:
    stack = f"{record.case.get('backend', '')}/{record.case.get('variant', '')}"
    words = brief(record.id).removesuffix(f" {record.case.get('variant', '')}")
    return f"{words} {stack}"


def readable(run: Run) -> ShownRun:
    """A run as a `ShownRun`."""
    return ShownRun(**{item.name: getattr(run, item.name) for item in fields(Run)})


class NotebookBar:
    """The progress of a run, as a bar below its cell; drawn only when a case begins or ends."""

    def __init__(self, total: int, display: Any) -> None:
        self.total, self.done, self.doing = total, 0, ""
        self.html: Any = display.HTML
        self.handle = display.display(self.html(self._drawn()), display_id=True)

    def _drawn(self) -> str:
        said = f"{self.done} of {self.total} cases" + (f" · {self.doing}" if self.doing else "")
        return f"<div><progress value='{self.done}' max='{max(1, self.total)}'>{self.done}</progress> {escape(said)}</div>"

    def _draw(self) -> None:
        if self.handle is not None:
            self.handle.update(self.html(self._drawn()))

    def started(self, case_id: str) -> None:
        """Show that a case begins."""
        self.doing = brief(case_id)
        self._draw()

    def phase(self, name: str, fraction: float | None) -> None:
        """Nothing is drawn while a case is measured."""

    def finished(self, record: Record) -> None:
        """Show that a case is finished."""
        self.done, self.doing = self.done + 1, ""
        self._draw()

    def waiting(self, text: str) -> None:
        """Show what the run is waiting for, such as another run on this machine."""
        self.doing = clean(text)
        self._draw()

    def note(self, text: str) -> None:
        """Show a line until the next case."""
        self.waiting(text)

    def close(self) -> None:
        """Leave the bar in its last state."""


class Quiet:
    """No progress: for a script whose stderr goes to a file or a pipe."""

    def started(self, case_id: str) -> None: ...
    def phase(self, name: str, fraction: float | None) -> None: ...
    def finished(self, record: Record) -> None: ...
    def waiting(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def watch(total: int) -> NotebookBar | Progress | Quiet:
    """The progress display for this session: a bar in a notebook, a live line on a terminal, otherwise nothing."""
    shell = sys.modules.get("IPython")
    here = shell.get_ipython() if shell is not None else None
    if here is not None and getattr(here, "kernel", None) is not None:
        return NotebookBar(total, importlib.import_module("IPython.display"))
    return Progress(total, sys.stderr) if is_live(sys.stderr) else Quiet()
