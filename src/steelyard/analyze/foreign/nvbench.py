"""nvbench: `--json FILE` or `--jsonbin FILE`; the samples beside the file are used where they are, else its summaries."""

from __future__ import annotations

import math
import re
from array import array
from pathlib import Path, PurePosixPath
from typing import Any

from steelyard.analyze.foreign.parts import (
    ForeignResult,
    ForeignSource,
    count,
    number,
    rows,
    seconds,
    table,
    text,
    time_around,
    time_of,
    word,
)
from steelyard.files import open_plain
from steelyard.model.record import Figure

TIMES = ("nv/cold/time/gpu", "nv/cpu_only/time/cpu", "nv/batch/time/gpu", "nv/cold/time/cpu")
SAMPLES = "nv/json/bin:nv/cold/sample_times"
MOST_BYTES = 256 * 2**20
NORMAL_95 = 1.96
Summaries = dict[str, dict[str, Any]]


def fits(data: Any) -> bool:
    """Benchmarks that have states."""
    return isinstance(data, dict) and any("states" in item for item in rows(data.get("benchmarks")))


def read(data: Any, path: Path) -> ForeignSource:
    """One result per state, which is a benchmark at one point of its axes on one device."""
    results = [_result(item, state, path) for item in rows(data.get("benchmarks")) for state in rows(item.get("states"))]
    devices = sorted({word(device.get("name")) for device in rows(data.get("devices"))})
    version = table(table(table(data.get("meta")).get("version")).get("nvbench")).get("string")
    return ForeignSource(results, machine={"devices": ", ".join(filter(None, devices))}, versions={"nvbench": version})


def _result(benchmark: dict[str, Any], state: dict[str, Any], path: Path) -> ForeignResult:
    point = word(state.get("name")) or word(state.get("description")) or f"state {text(state.get('index', ''))}"
    name = f"{word(benchmark.get('name'), 'unnamed')} {point}".strip()
    if state.get("is_skipped") is True:
        return ForeignResult(name, (), "skipped", word(state.get("skip_reason"), "it was skipped"))
    summaries = _summaries(state.get("summaries"))
    figure = _from_samples(summaries, path) or _from_summaries(summaries)
    return ForeignResult(name, [{"time": figure}]) if figure else ForeignResult(name, (), "failed", "it has no time")


def _summaries(value: Any) -> Summaries:
    """By tag, each as its named values; older files have a table in place of the list."""
    items = rows(value) or [{"tag": tag, "data": table(item).get("values")} for tag, item in table(value).items()]
    return {word(item.get("tag")): {word(part.get("name")): part.get("value") for part in rows(item.get("data"))} for item in items}


def _from_summaries(summaries: Summaries) -> Figure | None:
    for stem in TIMES:
        mean = seconds(summaries.get(f"{stem}/mean", {}).get("value"))
        if mean is None:
            continue
        spread = number(summaries.get(f"{stem}/stdev/relative", {}).get("value"))
        n = count(summaries.get("/".join([*stem.split("/")[:2], "sample_size"]), {}).get("value"))
        half = NORMAL_95 * mean * spread / math.sqrt(n) if spread is not None and n else None
        return time_around(mean, half, n)
    return None


def _from_samples(summaries: Summaries, path: Path) -> Figure | None:
    """Raw times from `FILE.json-bin/N.bin`; only the number is taken from the file, the folder is known."""
    told = summaries.get(SAMPLES, {})
    name, size = PurePosixPath(word(told.get("filename")).replace("\\", "/")).name, count(told.get("size"))
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
    return time_of(values)


def _plain_file(file: Path) -> bytes:
    if file.is_symlink() or file.parent.is_symlink() or not file.is_file():
        raise OSError(f"not a plain file: {file}")
    with open_plain(file) as stream:
        return stream.read(MOST_BYTES + 1)
