"""Read result files of benchmark_v2 for compare, gate, show and report: all its versions, and rows of its datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, json_lines, number, rows, status_of, table, text, time_of, word
from steelyard.errors import StoreError, UsageError
from steelyard.model.case import Case
from steelyard.model.record import Figure, Status

SCENARIOS, HASH = "benchmark_scenarios", "benchmark_config_hash"
TIMES = {
    "latency": "time", "e2e_latency": "time", "time_to_first_token": "ttft", "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
}  # fmt: skip
"""Our metrics by their names in the files, which may end in `_seconds`."""
PART = "measurements"


def lines(content: bytes, name: str) -> list[Any] | None:
    """Rows of a dataset, one on each line; None if the content is something else."""
    return json_lines(content) if content.startswith(b'{"benchmark_config_hash"') else None


def fits(data: Any) -> bool:
    """Whether the data is from a file of one of the versions."""
    if isinstance(data, list):
        return any(HASH in row and PART in row for row in rows(data)[:1])
    found = table(data)
    if "benchmark_results" in found and "run_metadata" in found:
        raise StoreError("a summary has no times", why="it only lists the files with times", do="name a file of one model")
    first = next(iter(found.values()), None)
    return isinstance(found.get(SCENARIOS), list) or (isinstance(first, dict) and {"metadata", PART, "config"} <= first.keys())


def read(data: Any, path: Path) -> list[ForeignSource]:
    """The scenarios of a file as one source, with the machine and commit of the first."""
    found = rows(data) if isinstance(data, list) else rows(data[SCENARIOS]) if SCENARIOS in data else rows(list(data.values()))
    if not found:
        return []
    metadata = table(found[0].get("metadata"))
    hardware = table(metadata.get("hardware_info"))
    told = {name: hardware.get(name) for name in ("gpu_name", "gpu_memory_total", "gpu_memory_total_gb", "cpu_count", "memory_total")}
    versions = {"torch": hardware.get("torch_version"), "python": hardware.get("python_version")}
    names: dict[str, int] = {}
    return [
        ForeignSource(
            [_result(row, path, names) for row in found], word(metadata.get("timestamp")), told, word(metadata.get("commit_id")),
            versions={name: version for name, version in versions.items() if isinstance(version, str)},
            branch=word(metadata.get("branch")) or word(metadata.get("branch_name")),
        )
    ]  # fmt: skip


def _result(row: Mapping[str, Any], path: Path, names: dict[str, int]) -> ForeignResult:
    metadata, config = table(row.get("metadata")), table(row.get("config"))
    config = config or table(metadata.get("config"))
    figures = dict(_figures(table(row.get(PART))))
    said = row.get("status") or metadata.get("status")
    status: Status = status_of(said) if said else "ok" if metadata.get("success", True) and figures else "failed"
    reason = text(row.get("reason") or metadata.get("reason") or ("" if figures else "it has no times"), 500)
    if status == "ok" and "time" not in figures:
        status, reason = "failed", reason or "it has no times"
    figures = figures if status in ("ok", "wrong") else {}
    name = text(word(row.get("scenario_name")) or word(config.get("name")) or path.stem)
    model = word(config.get("model_id")) or word(metadata.get("model_id"))
    id, known = word(row.get("case")) or word(metadata.get("case")), [figures] if figures else []
    with suppress(UsageError):
        if id and not names.get(id):
            names[id] = 1
            return ForeignResult(id, known, status, reason, Case.parse(id).plain())
    return ForeignResult(f"{model} {name}".strip(), known, status, reason)


def _figures(measured: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield medians of raw values with their intervals; only the medians if a file has no raw values."""
    for key, found in measured.items():
        name = key.removesuffix("_seconds")
        values = found.get(PART) if isinstance(found, dict) else found
        kept = values if isinstance(values, list) else []
        if name in TIMES:
            summary = table(found)
            figure = time_of(kept) or time_of([summary.get("median", summary.get("mean"))])
            if figure:
                yield TIMES[name], figure
        elif name == "tokens_per_second":
            known = sorted(value for item in kept if (value := number(item)) is not None and value > 0)
            middle = number(table(found).get("median", table(found).get("mean")))
            if known or middle:
                yield "item_rate", Figure(known[len(known) // 2] if known else middle or 0.0, "item/s", "higher", n=len(known) or None)
