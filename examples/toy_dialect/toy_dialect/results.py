"""Toy's result files for compare, gate, show and report: the last line of a name counts, and a torn one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, json_lines, number, rows, status_of, text, time_of, word
from steelyard.model.record import Figure


def lines(content: bytes, name: str) -> list[Any] | None:
    """The whole lines of such a file; None where it is none."""
    return json_lines(content) if content.startswith(b'{"toy_results"') else None


def fits(data: Any) -> bool:
    """Whether it is what `lines` gave."""
    return any("toy_results" in row for row in rows(data)[:1])


def read(data: Any, path: Path) -> list[ForeignSource]:
    """A result for each name."""
    found = {word(row["name"]): row for row in rows(data) if "name" in row}
    return [ForeignSource([_result(name, row) for name, row in found.items()])]


def _result(name: str, row: dict[str, Any]) -> ForeignResult:
    status, cold = status_of(row.get("status")), number(row.get("cold_s"))
    figure = time_of(row["times_s"]) if isinstance(row.get("times_s"), list) else None
    if status != "ok" or figure is None:
        return ForeignResult(name, (), "failed" if status == "ok" else status, text(row.get("reason", "it has no times")))
    return ForeignResult(name, [{"time": figure} | ({"cold_time": Figure(cold, "s", "lower", n=1)} if cold else {})])
