"""hyperfine: `hyperfine --export-json FILE`; the wall time of every run where they were kept, else their median and spread."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource

STATISTICS = {"mean", "median", "min", "max"}


def fits(data: Any) -> bool:
    """A list of results, each of a command with its statistics."""
    results = parts.rows(data.get("results")) if isinstance(data, dict) else []
    return any(isinstance(item.get("command"), str) and item.keys() >= STATISTICS for item in results)


def read(data: Any, path: Path) -> ForeignSource:
    """One result per command, by its text or the name that it was given; parameters are in the text already."""
    return ForeignSource([_result(item) for item in parts.rows(data.get("results"))])


def _result(item: dict[str, Any]) -> ForeignResult:
    name, times = parts.word(item.get("command"), "unnamed"), item.get("times")
    found = item.get("exit_codes")
    codes = found if isinstance(found, list) else []
    failed = [code for code in codes if code != 0]
    if failed:
        return ForeignResult(name, (), "failed", f"{len(failed)} of {len(codes)} runs ended with another exit code than 0")
    figure = parts.time_of(times) if isinstance(times, list) else None
    runs, spread = len(times) if isinstance(times, list) else 0, parts.number(item.get("stddev"))
    half = parts.NORMAL_95 * spread / math.sqrt(runs) if spread is not None and runs > 1 else None
    figure = figure or parts.time_around(parts.seconds(item.get("median")) or parts.seconds(item.get("mean")), half, runs or None)
    return ForeignResult(name, [{"time": figure}]) if figure else ForeignResult(name, (), "failed", "it has neither times nor a median")
