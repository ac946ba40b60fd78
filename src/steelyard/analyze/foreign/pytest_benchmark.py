"""pytest-benchmark: `pytest --benchmark-json FILE` or a file it saved; raw rounds are used where they were kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource


def fits(data: Any) -> bool:
    """Whether a file has facts about the machine, and benchmarks with statistics."""
    return isinstance(data, dict) and "machine_info" in data and any("stats" in item for item in parts.rows(data.get("benchmarks")))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per test, by its full name."""
    results = [_result(item) for item in parts.rows(data.get("benchmarks"))]
    info, commit = parts.table(data.get("machine_info")), parts.table(data.get("commit_info"))
    cpu = parts.table(info.get("cpu"))
    machine = {"cpu": cpu.get("brand_raw") or cpu.get("brand"), "count": cpu.get("count"), "machine": info.get("machine")}
    versions = {"python": info.get("python_version"), "pytest-benchmark": data.get("version")}
    created = parts.word(data.get("datetime")) or parts.word(commit.get("time"))
    return ForeignSource(results, created, machine, parts.word(commit.get("id")), commit.get("dirty") is True, versions)


def _result(item: dict[str, Any]) -> ForeignResult:
    stats = parts.table(item.get("stats"))
    name = parts.word(item.get("fullname")) or parts.word(item.get("name"), "unnamed")
    rounds, spread = parts.count(stats.get("rounds")), parts.number(stats.get("iqr"))
    half = parts.NOTCH * spread / math.sqrt(rounds) if rounds and rounds > 1 and spread is not None else None
    data = stats.get("data")
    figure = parts.time_of(data) if isinstance(data, list) else None
    figure = figure or parts.time_around(parts.seconds(stats.get("median")), half, rounds)
    return ForeignResult(name, [{"time": figure}]) if figure else ForeignResult(name, (), "failed", "it has neither rounds nor a median")
