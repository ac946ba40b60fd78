"""nvbench: `--json FILE` or `--jsonbin FILE`; the samples beside the file are used if they exist, else its summaries."""

from __future__ import annotations

import math
import re
from array import array
from pathlib import Path, PurePosixPath
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource
from steelyard.files import open_plain
from steelyard.model.record import Figure

TIMES = ("nv/cold/time/gpu", "nv/cpu_only/time/cpu", "nv/batch/time/gpu", "nv/cold/time/cpu")
SAMPLES = "nv/json/bin:nv/cold/sample_times"
MOST_BYTES = 256 * 2**20
Summaries = dict[str, dict[str, Any]]


def fits(data: Any) -> bool:
    """Whether a file has benchmarks with states."""
    return isinstance(data, dict) and any("states" in item for item in parts.rows(data.get("benchmarks")))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per state, which is a benchmark at one point of its axes on one device."""
    results = [_result(item, state, path) for item in parts.rows(data.get("benchmarks")) for state in parts.rows(item.get("states"))]
    devices = sorted({parts.word(device.get("name")) for device in parts.rows(data.get("devices"))})
    version = parts.table(parts.table(parts.table(data.get("meta")).get("version")).get("nvbench")).get("string")
    return ForeignSource(results, machine={"devices": ", ".join(filter(None, devices))}, versions={"nvbench": version})


def _result(benchmark: dict[str, Any], state: dict[str, Any], path: Path) -> ForeignResult:
    point = parts.word(state.get("name")) or parts.word(state.get("description")) or f"state {parts.text(state.get('index', ''))}"
    name = f"{parts.word(benchmark.get('name'), 'unnamed')} {point}".strip()
    if state.get("is_skipped") is True:
        return ForeignResult(name, (), "skipped", parts.word(state.get("skip_reason"), "it was skipped"))
    summaries = _summaries(state.get("summaries"))
    figure = _from_samples(summaries, path) or _from_summaries(summaries)
    return ForeignResult(name, [{"time": figure}]) if figure else ForeignResult(name, (), "failed", "it has no time")


def _summaries(value: Any) -> Summaries:
    """The summaries by tag, each as its named values; older files have a table in place of the list."""
    items = parts.rows(value) or [{"tag": tag, "data": parts.table(item).get("values")} for tag, item in parts.table(value).items()]
    return {
        parts.word(item.get("tag")): {parts.word(part.get("name")): part.get("value") for part in parts.rows(item.get("data"))}
        for item in items
    }


def _from_summaries(summaries: Summaries) -> Figure | None:
    for stem in TIMES:
        mean = parts.seconds(summaries.get(f"{stem}/mean", {}).get("value"))
        if mean is None:
            continue
        spread = parts.number(summaries.get(f"{stem}/stdev/relative", {}).get("value"))
        n = parts.count(summaries.get("/".join([*stem.split("/")[:2], "sample_size"]), {}).get("value"))
        half = parts.NORMAL_95 * mean * spread / math.sqrt(n) if spread is not None and n else None
        return parts.time_around(mean, half, n)
    return None


def _from_samples(summaries: Summaries, path: Path) -> Figure | None:
    """Raw times from `FILE.json-bin/N.bin`; only the number N is taken from the JSON file, never a folder."""
    told = summaries.get(SAMPLES, {})
    name, size = PurePosixPath(parts.word(told.get("filename")).replace("\\", "/")).name, parts.count(told.get("size"))
    if not size or not re.fullmatch(r"\d{1,9}\.bin", name) or 4 * size > MOST_BYTES:
        return None
    try:
        content = _plain_file(path.parent / f"{path.name}-bin" / name)
    except OSError:
        return None
    if len(content) != 4 * size:
        return None
    values = array("f", content)
    if array("H", [1]).tobytes() != b"\x01\x00":
        values.byteswap()
    return parts.time_of(values)


def _plain_file(file: Path) -> bytes:
    if file.is_symlink() or file.parent.is_symlink() or not file.is_file():
        raise OSError(f"not a plain file: {file}")
    with open_plain(file) as stream:
        return stream.read(MOST_BYTES + 1)
