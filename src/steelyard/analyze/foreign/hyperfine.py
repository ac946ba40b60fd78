"""hyperfine: what `hyperfine --export-json FILE` wrote is read, and runs are written as such a file.

Read: the wall time of every run where they were kept, else their median and spread. Written: every case that has a time and whose
samples are still there, as its tools (plots, tables) read them.
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


def text(run: Run) -> str:
    """A run as hyperfine writes one."""
    results = [result for record in run.records if record.status == "ok" for result in [_written(run, record)] if result]
    if not results:
        raise UsageError(f"run {run.id} has nothing that hyperfine's format can hold", why="no case of it is ok and kept its samples")
    return json.dumps({"results": results}, indent=2) + "\n"


def _written(run: Run, record: Record) -> dict[str, Any]:
    """One result; its statistics are of the very times in it, those of runs that were disturbed left out as everywhere."""
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
    """A program by its name, else its line; any other case by its id."""
    params = record.case.get("params") or {}
    if record.case.get("workload") != PROGRAM:
        return record.id
    name = params.get(NAME)
    return filled(name, values_of(params)) if isinstance(name, str) and name else shlex.join(words_of(params))
