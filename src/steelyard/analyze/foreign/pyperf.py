"""pyperf: `python -m pyperf … -o FILE`. Each of its runs is a process, so that noise between processes is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, number, rows, seconds, table, time_of, word
from steelyard.model.record import Figure

MACHINE = ("cpu_model_name", "cpu_count", "platform")
VERSIONS = {"python_version": "python", "perf_version": "pyperf"}


def fits(data: Any) -> bool:
    """Whether a file has a version, and benchmarks with runs."""
    return isinstance(data, dict) and isinstance(data.get("version"), str) and any("runs" in item for item in rows(data.get("benchmarks")))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per benchmark, with the mean of each process; calibration runs have no values and are left out."""
    common = table(data.get("metadata"))
    results, facts = [], dict(common)
    for benchmark in rows(data.get("benchmarks")):
        own = {**common, **table(benchmark.get("metadata"))}
        runs = rows(benchmark.get("runs"))
        first = {**own, **table(runs[0].get("metadata"))} if runs else own
        facts = {**first, **facts}
        name, unit = word(first.get("name"), "unnamed"), word(first.get("unit"), "second")
        figures = [figure for run in runs if (figure := _figure(run.get("values"), unit))]
        reason = "" if figures else "no process has values"
        results.append(ForeignResult(name, [{_metric(unit): figure} for figure in figures], "failed" if reason else "ok", reason))
    machine = {name: facts[name] for name in MACHINE if name in facts}
    versions = {name: facts[key] for key, name in VERSIONS.items() if key in facts}
    return ForeignSource(results, word(facts.get("date")), machine, versions=versions)


def _metric(unit: str) -> str:
    return {"second": "time", "byte": "peak_memory"}.get(unit, "value")


def _figure(values: Any, unit: str) -> Figure | None:
    listed = values if isinstance(values, list) else []
    if unit == "second":
        known = [found for value in listed if (found := seconds(value)) is not None]
        within = time_of(known)
        return Figure(sum(known) / len(known), "s", "lower", within.low, within.high, len(known)) if within else None
    others = [found for value in listed if (found := number(value)) is not None]
    if not others:
        return None
    return Figure(sum(others) / len(others), "B" if unit == "byte" else "", "lower" if unit == "byte" else "none", n=len(others))
