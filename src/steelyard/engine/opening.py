"""Workloads that open a file: from `WORD:PATH` to cases identified by content, and in a worker back to a path with unchanged content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard import files, registry
from steelyard.engine.filters import TAG, TIER
from steelyard.errors import UsageError, unknown
from steelyard.files import real
from steelyard.model.case import Case
from steelyard.model.define import OpenedFile, Workload
from steelyard.model.experiment import Matrix
from steelyard.model.values import Digest, file_value, is_file_value
from steelyard.registry import Catalogue

_SELECTOR = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]*):(.*)", re.DOTALL)
ARTIFACT = "artifact"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def split(word: str) -> tuple[str, str] | None:
    """Return the workload and the path of `WORD:PATH`; None for any other selector."""
    found = _SELECTOR.fullmatch(word)
    if found is None or word.startswith((TAG, TIER)) or "@" in found[1] or _ADDRESS.match(word):
        return None
    return found[1], found[2]


def matrices(matrix: Matrix, catalogue: Catalogue) -> list[Matrix]:
    """Split a matrix whose workloads name files: one for the other workloads, and one for each case in the files."""
    files = [(word, parts) for word in matrix.workload if (parts := split(word))]
    if not files:
        return [matrix]
    rest = tuple(word for word in matrix.workload if split(word) is None)
    made = [replace(matrix, workload=rest)] if rest else []
    for name, path in (parts for _, parts in files):
        parameter = _parameter(name, catalogue)
        for item in held(name, path):
            own = {parameter: (_valued(name, item),), **{key: (value,) for key, value in item.params.items()}}
            usual = (item.backend,) if item.backend and not matrix.backend else matrix.backend
            ranks = (item.ranks,) if matrix.ranks == (1,) else matrix.ranks
            made.append(replace(matrix, workload=(name,), axes={**matrix.axes, **own}, backend=usual, ranks=ranks))
    return made


def cases(word: str, catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return the cases of `WORD:PATH` as plain data: the file, its hash, its name, what is in it, and the values of other axes."""
    name, path = split(word) or ("", "")
    _parameter(name, catalogue)
    return [{**_valued(name, item), "doc": item.doc, "params": dict(item.params)} for item in held(name, path)]


def held(name: str, path: str) -> Sequence[OpenedFile]:
    """Return the cases in a file, as a built-in workload reads it; for a user's own workload the file is one case."""
    if not path:
        raise UsageError(f"{name}: names no file", do=f"write {name}:PATH")
    workload = registry.built_ins().workloads.get(name)
    place = _fetched(path) if _ADDRESS.match(path) and name == ARTIFACT else located(path)
    found = workload.contents(place) if workload is not None and workload.contents is not None else [OpenedFile(place)]
    if not found:
        raise UsageError(f"{path} contains nothing for {name}", do=f"see steelyard show {name} for what it opens")
    return found


def _fetched(url: str) -> Path:
    """Fetch the artifacts at an address, or one program, each checked by its hash; nothing is fetched twice."""
    from steelyard.artifacts import programs, remote, unpacking

    out = remote.cache() / "opened" / hashlib.sha256(url.encode()).hexdigest()[:16]
    address = url.partition(remote.DIGEST)[0]
    if address.endswith(programs.SUFFIXES) and not address.endswith(unpacking.ENDINGS):
        return remote.fetch_program(url, out, lambda line: None)
    remote.fetch(url, out, lambda line: None)
    return out


def located(path: str) -> Path:
    """Return the real path of a file; an error for an address."""
    if _ADDRESS.match(path):
        raise UsageError(
            f"cannot open {path}", why="it is an address", do="fetch it first (steelyard artifacts fetch), and name the file or folder"
        )
    return real(Path(path).expanduser())


def settled(case: Case, parameter: str) -> Case:
    """Return a case whose file is identified by its content: a path gets its hash, and a digest stays as it is."""
    value = dict(case.params).get(parameter, "")
    if is_file_value(value):
        _unchanged(value, case.workload)
        return case
    if isinstance(value, Digest) or value == "":
        return case
    if not isinstance(value, str):
        raise UsageError(f"{parameter} of {case.workload} is the path of a file, not {value!r}")
    items = held(case.workload, value)
    if len(items) > 1:
        raise UsageError(
            f"{value} holds {len(items)} cases of {case.workload}", do=f"name one of its files, or run {case.workload}:{value}"
        )
    known = {**dict(case.params), **items[0].params, parameter: _valued(case.workload, items[0])}
    return replace(case, params=tuple(known.items()), ranks=items[0].ranks if case.ranks == 1 else case.ranks)


def given(workload: Workload, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a body, with the path for the file; an error if its content has changed since the plan."""
    if not workload.opens:
        return dict(params)
    value = params.get(workload.opens, "")
    if not is_file_value(value):
        raise UsageError(f"{workload.name} needs a file", do=f"write {workload.name}:PATH")
    return {**params, workload.opens: str(_unchanged(value, workload.name))}


def _unchanged(value: Mapping[str, Any], workload: str) -> Path:
    """Return the path of a file; an error if its content has changed."""
    file = Path(value["file"])
    if _identity(workload, file) != value["sha256"]:
        why = "its content has changed since the case was named"
        raise UsageError(f"{file} has changed", why=why, do=f"run {workload}:{file} to measure what it holds now")
    return file


def _valued(workload: str, item: OpenedFile) -> dict[str, Any]:
    file = real(item.file)
    return file_value(str(file), _identity(workload, file), name=item.name)


def _identity(workload: str, file: Path) -> str:
    """Return what identifies a file: its hash, or what a built-in workload computes."""
    known = registry.built_ins().workloads.get(workload)
    return known.identify(file) if known is not None and known.identify is not None else files.sha256(file)


def _parameter(name: str, catalogue: Catalogue) -> str:
    """Return the parameter of a workload that is a file."""
    info = catalogue.workloads.get(name)
    if info is None or not info.get("opens"):
        opening = list(openers(catalogue))
        if info is not None:
            do = f"those that do: {', '.join(opening)}" if opening else ""
            raise UsageError(f"{name} does not open files", why=f"{name}:PATH is for workloads that do", do=do)
        raise unknown("workload", name, opening, listing="steelyard list")
    return str(info["opens"])


def openers(catalogue: Catalogue) -> Iterator[str]:
    """Return the workloads that open files."""
    return (name for name, info in catalogue.workloads.items() if info.get("opens"))
