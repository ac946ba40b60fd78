"""Results of other tools, read as runs, so that `compare` and `gate` work on what a team already has.

A file is recognised by its content, never by its name, and nothing in it is trusted: sizes are limited, every value is
checked, names are cleaned, and paths in it are only followed to files beside it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from steelyard import registry
from steelyard.analyze.foreign import google_benchmark, hyperfine, nvbench, pyperf, pytest_benchmark, tritonbench
from steelyard.analyze.foreign.parts import ForeignSource, as_runs
from steelyard.errors import StoreError, UsageError
from steelyard.files import RESULTS, check_values, existing, limit, read_whole, unpacked
from steelyard.store.runs import Run, moment

ENDINGS = (".json", ".json.gz", ".jsonl")
OWN = {
    "pyperf": pyperf, "pytest-benchmark": pytest_benchmark, "nvbench": nvbench, "google-benchmark": google_benchmark,
    "tritonbench": tritonbench, "hyperfine": hyperfine,
}  # fmt: skip
"""Tools whose results we read, without any other support for the tool; each module has `fits` and `read`."""


def readers() -> Iterator[tuple[str, Any]]:
    """Yield the readers of results: first OWN, then those of dialects; an installed dialect is loaded only if no earlier reader fits."""
    yield from OWN.items()
    for dialect in registry.dialects():
        if dialect.results:
            yield dialect.name, importlib.import_module(dialect.results)


def named(ref: str) -> tuple[Run, ...] | None:
    """The runs that `FILE`, `FOLDER` or `FILE#2` refers to; None if there is no such file or folder of another tool."""
    name, sign, number = ref.rpartition("#")
    whole, part = existing(ref), existing(name)
    if whole and holds_results(whole):
        return read_any(whole)
    if not sign or not re.fullmatch(r"[0-9]{1,6}", number) or not part or not holds_results(part):
        return None
    runs = read_any(part)
    if not 1 <= int(number) <= len(runs):
        raise UsageError(f"{name!r} has no run {number}", why=f"it has {len(runs)}")
    return runs[int(number) - 1 : int(number)]


def holds_results(path: Path) -> bool:
    """Whether a path may hold another tool's results: a file that is not a run's, or a folder with files that is not a run."""
    if path.is_file():
        return path.name != "run.jsonl"
    return path.is_dir() and not (path / "run.jsonl").exists() and bool(files_in(path))


def files_in(folder: Path) -> list[Path]:
    """The files directly in a folder that may hold results."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    except OSError as error:
        raise StoreError(f"could not read {str(folder)!r}", why=error.strerror or str(error)) from error


def read_any(path: Path) -> tuple[Run, ...]:
    """The results in a file, or in all files directly in a folder, oldest first; a file there without results is a warning."""
    if not path.is_dir():
        return read_file(path)
    runs: list[Run] = []
    passed: list[str] = []
    for file in files_in(path):
        try:
            runs += read_file(file)
        except StoreError as error:
            passed.append(f"{file} was skipped: {error.what}{f' ({error.why})' if error.why else ''}")
    if not runs:
        raise StoreError(f"no results in {str(path)!r}", why=passed[0] if passed else "it has no .json file")
    runs.sort(key=lambda run: moment(run.header.created))
    return (*runs[:-1], replace(runs[-1], warnings=(*runs[-1].warnings, *passed)))


def read_file(path: Path) -> tuple[Run, ...]:
    """The results in a file, one run per process that made them."""
    data = _load(path)
    known = []
    for tool, reader in readers():
        known.append(tool)
        if reader.fits(data):
            found = reader.read(data, path)
            sources = [source for source in ([found] if isinstance(found, ForeignSource) else found) if source.results]
            if not sources:
                raise StoreError(f"no results in {str(path)!r}", why=f"it is a file of {tool}, but has no benchmark that can be read")
            return _told_apart([as_runs(tool, path, source) for source in sources])
    raise StoreError(
        f"not a file of results: {str(path)!r}",
        why=f"its content is not that of {', '.join(known)}",
        do="name one of those tools' JSON files, a run folder, or a run id",
    )


def _told_apart(occasions: Sequence[Sequence[Run]]) -> tuple[Run, ...]:
    """The runs of a file that was written on several occasions, numbered consecutively."""
    runs = [run for occasion in occasions for run in occasion]
    if len(occasions) == 1:
        return tuple(runs)
    return tuple(
        replace(run, header=replace(run.header, id=f"{run.header.id.partition('#')[0]}#{number}")) for number, run in enumerate(runs, 1)
    )


def _load(path: Path) -> Any:
    try:
        content = read_whole(path, RESULTS)
    except OSError as error:
        raise StoreError(f"could not read {str(path)!r}", why=error.strerror or str(error)) from error
    content = unpacked(content, RESULTS, str(path))
    check_values(content, limit(RESULTS), str(path))
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _lenient(content, path, str(error))


def _lenient(content: bytes, path: Path, why: str) -> Any:
    """Read JSON with NaN and Infinity, which Python writes and strict readers refuse, as null; else try the readers of line formats."""
    try:
        return json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        for _, reader in readers():
            if hasattr(reader, "lines") and (lines := reader.lines(content, path.name)):
                return lines
        raise StoreError(f"not JSON: {str(path)!r}", why=why if content.strip() else "the file is empty") from None
