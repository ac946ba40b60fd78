"""google-benchmark: `--benchmark_out=FILE --benchmark_out_format=json`; repetitions are used as values, aggregates only if those are
missing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource
from steelyard.model.record import Figure

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {"bytes_per_second": ("bandwidth", "B/s"), "items_per_second": ("item_rate", "item/s")}


def fits(data: Any) -> bool:
    """Whether a file has a context, and benchmarks with a real time or an error."""
    if not isinstance(data, dict) or not isinstance(data.get("context"), dict):
        return False
    return any("real_time" in item or "error_occurred" in item for item in parts.rows(data.get("benchmarks")))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per run name; one process made all its repetitions."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in parts.rows(data.get("benchmarks")):
        groups.setdefault(parts.word(item.get("run_name")) or parts.word(item.get("name"), "unnamed"), []).append(item)
    context = parts.table(data.get("context"))
    machine = {name: context.get(name) for name in ("num_cpus", "mhz_per_cpu")}
    versions = {"google-benchmark": context.get("library_version")}
    warnings = [f"{parts.text(path.name)} was made by a debug build of the library"] if context.get("library_build_type") == "debug" else []
    results = [_result(name, items) for name, items in groups.items()]
    return ForeignSource(results, parts.word(context.get("date")), machine, versions=versions, warnings=warnings)


def _result(name: str, items: list[dict[str, Any]]) -> ForeignResult:
    for item in items:
        if item.get("error_occurred") is True:
            return ForeignResult(name, (), "failed", parts.word(item.get("error_message"), "an error occurred"))
    if all(item.get("skipped") is True for item in items):
        return ForeignResult(name, (), "skipped", parts.word(items[0].get("skip_message"), "it was skipped"))
    repetitions = [item for item in items if item.get("run_type", "iteration") == "iteration"]
    time = parts.time_of(item["real_time"] * unit for item, unit in _timed(repetitions, "real_time")) or _from_aggregates(items)
    if time is None:
        return ForeignResult(name, (), "failed", "it has no time")
    figures = {"time": time}
    if cpu := parts.time_of(item["cpu_time"] * unit for item, unit in _timed(repetitions, "cpu_time")):
        figures["cpu_time"] = cpu
    for key, (metric, unit_name) in RATES.items():
        known = sorted(found for item in repetitions if (found := parts.number(item.get(key))) is not None and found > 0)
        if known:
            figures[metric] = Figure(known[len(known) // 2], unit_name, "higher", n=len(known))
    return ForeignResult(name, [figures])


def _timed(items: list[dict[str, Any]], key: str) -> list[tuple[dict[str, Any], float]]:
    """The items with a time in a known unit, each with that unit in seconds."""
    units = [(item, UNITS.get(parts.word(item.get("time_unit"), "ns"))) for item in items]
    return [(item, unit) for item, unit in units if unit and isinstance(item.get(key), (int, float)) and parts.seconds(item[key], unit)]


def _from_aggregates(items: list[dict[str, Any]]) -> Figure | None:
    """For files with aggregates only: the median of the repetitions, with an interval from their standard deviation."""
    by_name = {parts.word(item.get("aggregate_name")): item for item in items if item.get("run_type") == "aggregate"}
    centre = next(iter(_timed([by_name[name] for name in ("median", "mean") if name in by_name], "real_time")), None)
    if centre is None:
        return None
    item, unit = centre
    spread, n = parts.number(by_name.get("stddev", {}).get("real_time")), parts.count(item.get("repetitions"))
    half = parts.NORMAL_95 * 1.2533 * spread * unit / math.sqrt(n) if spread is not None and n else None
    return parts.time_around(parts.seconds(item["real_time"], unit), half, n)
