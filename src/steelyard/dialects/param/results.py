"""Read PARAM's output files, from the original or from us: a header begins a run, and each of its records is a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, json_lines, table, text, time_of, word
from steelyard.dialects.param import lines as output
from steelyard.dialects.param import native
from steelyard.dialects.param.expand import Config
from steelyard.dialects.param.flags import Options
from steelyard.errors import SteelyardError
from steelyard.model.record import STATUSES, Figure, Status

MILLISECOND = 1e-3
LONGEST_REASON = 500


@dataclass(frozen=True)
class OutputLines:
    """The complete lines of an output file."""

    lines: tuple[Mapping[str, Any], ...]


def lines(content: bytes, name: str) -> OutputLines | None:
    """Return the lines of an output file; None if it is not one."""
    if not content.startswith(output.BEGINNING):
        return None
    return OutputLines(tuple(line for line in json_lines(content) if output.KEYS & line.keys()))


def fits(data: Any) -> bool:
    """Whether the data is such a file, or only its first line."""
    return isinstance(data, OutputLines) or (isinstance(data, dict) and "run_options" in data and "sys_info" in data)


def read(data: Any, path: Path) -> list[ForeignSource]:
    """Return a source for every header with records, oldest first."""
    occasions: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = []
    for line in data.lines if isinstance(data, OutputLines) else [data]:
        if "run_options" in line:
            occasions.append((line, []))
        elif "op_name" in line and isinstance(line.get("id"), str) and occasions:
            occasions[-1][1].append(line)
    return [_source(header, records) for header, records in occasions if records]


def _source(header: Mapping[str, Any], records: list[Mapping[str, Any]]) -> ForeignSource:
    options, system = _options(table(header.get("run_options"))), table(header.get("sys_info"))
    found: dict[str, ForeignResult] = {}
    for line in records:
        result = _result(line, options)
        found[result.name] = result
    versions = {name: word(system.get(key)) for name, key in (("torch", "pytorch_version"), ("python", "python_version"))}
    device = word(system.get("cuda_device_name"))
    facts = {"gpus": [{"name": text(device)}]} if device and options.on_cuda else {}
    return ForeignSource(list(found.values()), word(header.get("start_time")), versions=versions, facts=facts)


def _options(asked: Mapping[str, Any]) -> Options:
    """Return the options that decide the case of a record; options missing in a header have defaults."""
    ours, device = table(asked.get("cmd_args")), word(asked.get("device"), "cpu")
    threads, seed = (value if type(value := ours.get(name)) is int else 0 for name in ("threads", "seed"))
    return Options(
        device=device, pt2_model=asked.get("pt2-model") is True, cuda_graph=asked.get("cuda-graph") is True,
        threads=max(1, threads), seed=max(0, seed),
    )  # fmt: skip


def _result(line: Mapping[str, Any], options: Options) -> ForeignResult:
    config, ours = table(line.get("config")), table(line.get("steelyard"))
    seed = ours.get("seed")
    given = Config(
        word(line.get("op_name")), str(line["id"]), config.get("build"), table(config.get("input")), "", ("", ""),
        seed if type(seed) is int else None,
    )  # fmt: skip
    status, figures = _status(line, ours), _figures(table(line.get("metric")))
    if status == "ok" and not figures:
        status = "failed"
    reason = text(ours.get("error") or ("" if figures else "it has no measured call"), LONGEST_REASON) if status != "ok" else ""
    processes = [figures] if figures and status == "ok" else ()
    try:
        case = native.case_of(given, options)
    except (SteelyardError, TypeError, ValueError, RecursionError):
        return ForeignResult(f"call/torch {text(given.full_id)}", processes, status, reason)
    return ForeignResult(case.id, processes, status, reason, case.plain())


def _status(line: Mapping[str, Any], ours: Mapping[str, Any]) -> Status:
    told = ours.get("status")
    return next((status for status in STATUSES if status == told), "ok" if line.get("metric") else "skipped")


def _figures(metric: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the time of each pass, from its measured calls."""
    found = {}
    for name, part in (("time", "forward"), ("backward_time", "backward")):
        values = table(metric.get(part)).get("measure.time")
        if isinstance(values, list) and (figure := time_of(values, MILLISECOND)):
            found[name] = figure
    return found
