"""hyperfine: reads files of `hyperfine --export-json FILE`, and writes runs as such files.

Reads the wall time of every run if the file has them, else their median and spread. Writes every case that has a time and still
has its samples, so that hyperfine's own tools (plots, tables) can read them.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource
from steelyard.errors import UsageError
from steelyard.model.programs import NAME, PROGRAM, filled, values_of, words_of
from steelyard.model.record import Record
from steelyard.store.runs import Run

STATISTICS = {"mean", "median", "min", "max"}


def fits(data: Any) -> bool:
    """Whether a file has a list of results, each a command with its statistics."""
    results = parts.rows(data.get("results")) if isinstance(data, dict) else []
    return any(isinstance(item.get("command"), str) and item.keys() >= STATISTICS for item in results)


def read(data: Any, path: Path) -> ForeignSource:
    """One result per command, named by its text or the name that it was given; the text already contains parameters."""
    return ForeignSource([_result(item) for item in parts.rows(data.get("results"))])


def _result(item: dict[str, Any]) -> ForeignResult:
    name, times = parts.word(item.get("command"), "unnamed"), item.get("times")
    found = item.get("exit_codes")
    codes = found if isinstance(found, list) else []
    failed = [code for code in codes if code != 0]
    if failed:
        return ForeignResult(name, (), "failed", f"{len(failed)} of {len(codes)} runs ended with an exit code other than 0")
    figure = parts.time_of(times) if isinstance(times, list) else None
    runs, spread = len(times) if isinstance(times, list) else 0, parts.number(item.get("stddev"))
    half = parts.NORMAL_95 * spread / math.sqrt(runs) if spread is not None and runs > 1 else None
    figure = figure or parts.time_around(parts.seconds(item.get("median")) or parts.seconds(item.get("mean")), half, runs or None)
    return ForeignResult(name, [{"time": figure}]) if figure else ForeignResult(name, (), "failed", "it has neither times nor a median")


def text(run: Run) -> str:
    """A run in hyperfine's format."""
    results = [result for record in run.records if record.status == "ok" for result in [_written(run, record)] if result]
    if not results:
        raise UsageError(f"run {run.id} has nothing that hyperfine's format can hold", why="none of its cases is ok and has its samples")
    return json.dumps({"results": results}, indent=2) + "\n"


def _written(run: Run, record: Record) -> dict[str, Any]:
    """One result, with the statistics of exactly the times in it; as everywhere, preempted runs are left out."""
    kept = {series.name: run.array(series) for series in record.samples if series.name in ("block_time", "preempted")}
    if "block_time" not in kept:
        return {}
    calls = record.effective.get("calls_per_block")
    times = kept["block_time"] / (calls if isinstance(calls, int) and calls > 0 else 1)
    hit = kept.get("preempted")
    if hit is not None and len(hit) == len(times) and not hit.all() and not record.effective.get("kept_preempted"):
        times = times[hit == 0]
    found, program = [float(time) for time in times], record.case.get("workload") == PROGRAM
    account = {name: record.metrics[f"{name}_time"].value if f"{name}_time" in record.metrics else None for name in ("user", "system")}
    told: dict[str, Any] = {
        "command": _command(record), "mean": statistics.fmean(found), "stddev": statistics.stdev(found) if len(found) > 1 else None,
        "median": statistics.median(found), **account, "min": min(found), "max": max(found), "times": found,
    }  # fmt: skip
    values = values_of(record.case.get("params") or {}) if program else {}
    told |= {"exit_codes": [0] * len(found)} if program else {}
    return told | ({"parameters": {name: str(value) for name, value in values.items()}} if values else {})


def _command(record: Record) -> str:
    """A program's name, else its command line; for any other case its id."""
    params = record.case.get("params") or {}
    if record.case.get("workload") != PROGRAM:
        return record.id
    name = params.get(NAME)
    return filled(name, values_of(params)) if isinstance(name, str) and name else shlex.join(words_of(params))
