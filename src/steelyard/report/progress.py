"""Progress on stderr: one live line on a terminal, one plain line per finished case anywhere else.

It draws only when it is called: no thread and no timer runs beside a measurement.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TextIO

from rich.cells import cell_len

from steelyard.model.record import Record
from steelyard.model.units import duration, percent
from steelyard.report.cells import brief, case_line, clean, cut

ERASE = "\r\x1b[K"
REDRAW_GAP = 0.1


def is_live(stream: TextIO) -> bool:
    """Whether a line can be rewritten in place: on a terminal that supports it, and not in CI that only looks like one."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and not in_ci and os.environ.get("TERM") != "dumb"


class Progress:
    """The progress of a run; the caller reports every step to it."""

    def __init__(self, total: int, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.stream, self.clock = total, stream, clock
        self.done = 0
        self._live = is_live(stream)
        self._case, self._doing = "", ""
        self._started, self._spent = clock(), 0.0
        self._drawn_at: float | None = None
        self._shown = False

    def started(self, case_id: str) -> None:
        """Show that a case begins."""
        self._case, self._doing, self._started = brief(case_id), "", self.clock()
        self._draw()

    def phase(self, name: str, fraction: float | None = None) -> None:
        """Show what the running case does and, if known, how much of it is done."""
        shown = clean(name)
        changed = not self._doing.startswith(shown)
        self._doing = shown if fraction is None else f"{shown} {percent(min(max(fraction, 0.0), 1.0))}"
        if changed or self._drawn_at is None or self.clock() - self._drawn_at >= REDRAW_GAP:
            self._draw()

    def finished(self, record: Record) -> None:
        """Show a finished case; without a terminal this is its only line."""
        self.done += 1
        self._spent += self.clock() - self._started
        self._started = self.clock()
        self._case, self._doing = "", ""
        if self._live:
            self._draw()
        else:
            self._print(f"[{self.done}/{self.total}] {case_line(record)}")

    def waiting(self, text: str) -> None:
        """Show why nothing runs yet."""
        if self._live:
            self._doing = clean(text)
            self._draw()
        else:
            self._print(clean(text))

    def note(self, text: str) -> None:
        """Print a permanent line above the live one."""
        self._clear()
        self._print(clean(text))

    def close(self) -> None:
        """Clear the live line."""
        self._clear()

    @property
    def left(self) -> float | None:
        """Seconds left if the remaining cases take as long as the finished ones; None before the first is finished."""
        if not self.done or self.done >= self.total:
            return None
        each = self._spent / self.done
        return max(0.0, each * (self.total - self.done) - min(each, self.clock() - self._started))

    def _line(self, width: int) -> str:
        """The whole line; if it is too long, the case is shortened first, then the phase."""
        left = self.left
        head = f"[{min(self.done + 1, self.total)}/{self.total}] "
        tail = "".join(f" · {part}" for part in (self._doing, "" if left is None else f"about {duration(left)} left") if part)
        case = cut(self._case, max(12, width - cell_len(head) - cell_len(tail)))
        return cut(head + (case + tail if case else tail.removeprefix(" · ")), width)

    def _draw(self) -> None:
        if self._live:
            self._drawn_at, self._shown = self.clock(), True
            self._write(ERASE + self._line(self._width() - 1))

    def _clear(self) -> None:
        if self._live and self._shown:
            self._shown = False
            self._write(ERASE)

    def _print(self, line: str) -> None:
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self._live = False

    def _width(self) -> int:
        try:
            return int(os.environ.get("COLUMNS", "")) or 80
        except ValueError:
            pass
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except (OSError, ValueError):
            return shutil.get_terminal_size().columns
