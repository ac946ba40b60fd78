"""TritonBench: `--output-json FILE`, its nightly form with metrics inside, or its table as a list of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import metric_names
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, number, rows, seconds, table, time_of, word
from steelyard.model.record import Figure

LONGEST_KEY = 1000
MILLI = 1e-3
_ENTRY = re.compile(r"tritonbench_(?P<op>[^\[\]]*)\[x_(?P<x>.*)-(?P<provider>[^-\[\]]*)\]_(?P<metric>[^\[\]]+)")
_PASS = re.compile(r"tritonbench_(?P<op>[^\[\]]*)-pass")
RATES = {"tflops": ("compute", "FLOP/s", 1e12), "gbps": ("bandwidth", "B/s", 1e9)}
READ = ("latency", "walltime", "accuracy", *RATES)
DERIVED_ROWS = ("average", "hashes")
Cells = dict[str, dict[str, Any]]


def fits(data: Any) -> bool:
    """Whether a file has TritonBench's keys, or rows with a column of latencies."""
    if isinstance(data, list):
        return any(key.endswith("-latency") for row in rows(data)[:10] for key in row if isinstance(key, str))
    return any(len(key) <= LONGEST_KEY and (_ENTRY.fullmatch(key) or _PASS.fullmatch(key)) for key in _metrics(data))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per operator, point and provider; averages over points are left out."""
    cells, failed = _from_rows(data) if isinstance(data, list) else _from_keys(_metrics(data))
    results = [_result(name, found) for name, found in cells.items()]
    results += [ForeignResult(name, (), "failed", "the operator failed") for name in failed]
    environ = table(table(data).get("environ"))
    versions = {"torch": environ.get("pytorch_git_version") or environ.get("torch"), "triton": environ.get("triton")}
    return ForeignSource(results, machine={"device": environ.get("device")}, versions=versions)


def _metrics(data: Any) -> dict[str, Any]:
    return table(table(data).get("metrics")) or table(data)


def _from_keys(metrics: dict[str, Any]) -> tuple[Cells, list[str]]:
    cells: Cells = {}
    failed = []
    for key, value in metrics.items():
        if len(key) > LONGEST_KEY:
            continue
        if (entry := _ENTRY.fullmatch(key)) and entry["x"] not in DERIVED_ROWS and entry["provider"]:
            cells.setdefault(f"{entry['op']} {entry['x']} {entry['provider']}", {})[entry["metric"]] = value
        elif (passed := _PASS.fullmatch(key)) and number(value) == 0:
            failed.append(passed["op"])
    return cells, failed


def _from_rows(data: list[Any]) -> tuple[Cells, list[str]]:
    """Read a table whose columns are `provider-metric`; columns without a metric give the point."""
    cells: Cells = {}
    for row in rows(data):
        point = " ".join(str(value) for key, value in row.items() if "-" not in key and isinstance(value, (str, int, float)))[:LONGEST_KEY]
        if point in DERIVED_ROWS:
            continue
        for key, value in row.items():
            provider, dash, metric = key.partition("-")
            if dash and metric:
                cells.setdefault(f"{point} {provider}", {})[metric] = value
    return cells, []


def _result(name: str, found: dict[str, Any]) -> ForeignResult:
    latency = found.get("latency")
    time = time_of(_values(latency), MILLI) if "latency" in found else time_of(_values(found.get("walltime")), MILLI)
    if number(found.get("accuracy")) == 0 or found.get("accuracy") is False:
        return ForeignResult(name, [{"time": time}] if time else (), "wrong", "its result differs from the baseline's")
    if time is None:
        said = next((value for value in found.values() if isinstance(value, str) and number(value) is None), "")
        return ForeignResult(name, (), "failed", said or "it has no latency")
    rates = {
        metric: Figure(value * factor, unit, "higher")
        for key, (metric, unit, factor) in RATES.items()
        if (value := number(found.get(key))) is not None and value > 0
    }
    return ForeignResult(name, [{"time": time, **rates, **_others(found)}])


def _others(found: dict[str, Any]) -> dict[str, Figure]:
    """Every other metric that is a number, such as a speedup; the file does not say its unit."""
    known = {key: value for key, given in found.items() if key not in READ and (value := _number(given)) is not None}
    return {metric_names.spelled(key): Figure(value, "1", metric_names.direction(key)) for key, value in known.items()}


def _number(given: Any) -> float | None:
    return None if isinstance(given, bool) else number(given)


def _values(value: Any) -> Iterator[float]:
    """The times of a latency: a number, a number as text with or without its variance, or a list of these."""
    for item in value if isinstance(value, list) else [value]:
        told = word(item).partition(" (")[0].strip() if isinstance(item, str) else item
        if (found := seconds(told)) is not None:
            yield found
