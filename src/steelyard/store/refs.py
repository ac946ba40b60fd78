"""References to results: `latest`, `latest~3`, `k3f9`, `k3f9/2`, a path, a case id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from steelyard.errors import StoreError, UsageError, did_you_mean, unknown
from steelyard.files import existing
from steelyard.model.case import Case
from steelyard.model.record import Record
from steelyard.store.index import Index
from steelyard.store.runs import Run, RunInfo, Store, read_run

_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_NUMBERED = re.compile(r"(.+)/(\d{1,9})")


class NoSuchRecord(UsageError):
    """A run exists, but it has no record of the given number."""

    def __init__(self, run: Run, number: int, do: str = "") -> None:
        held = f"{len(run.records) or 'no'} record{'' if len(run.records) == 1 else 's'}"
        super().__init__(f"run {run.id} has no record {number}", why=f"it has {held}", do=do)


@dataclass(frozen=True)
class Ref:
    """A run, or one record of it; `number` counts from one, as the tables do."""

    run: Run
    number: int | None = None

    @property
    def record(self) -> Record | None:
        return None if self.number is None else self.run.records[self.number - 1]

    def __str__(self) -> str:
        return self.run.id if self.number is None else f"{self.run.id}/{self.number}"


def resolve(store: Store, ref: str) -> Ref:
    """Find the result that a reference names; the error suggests the nearest one."""
    if "@" in ref and not _as_path(ref):
        return _newest(store, ref)
    numbered = _NUMBERED.fullmatch(ref)
    if not numbered or _as_path(ref):
        return Ref(read_run(locate(store, ref)))
    run = read_run(locate(store, numbered[1]))
    number = int(numbered[2])
    if not 1 <= number <= len(run.records):
        raise NoSuchRecord(run, number, do=f"all: steelyard show {run.id}")
    return Ref(run, number)


def locate(store: Store, ref: str) -> Path:
    """The folder of the run that a reference names."""
    if latest := _LATEST.fullmatch(ref):
        return _latest(store, int(latest[1] or 0))
    infos = store.runs()
    exact = [info for info in infos if info.id == ref]
    near = exact or [info for info in infos if ref and info.id.startswith(ref)]
    if len(near) == 1:
        return store.at_hand(near[0].path)
    if near:
        shown = ", ".join(f"{info.id} ({info.created[:16]})" for info in near[:6])
        raise UsageError(f"run {ref!r} is ambiguous", why=f"{len(near)} runs begin with it: {shown}", do="type more of the id")
    if path := _as_path(ref):
        return path
    if not infos:
        raise UsageError(f"no run named {ref!r}", why=f"there are no runs in {store.place}", do="measure something first: steelyard run")
    raise unknown("run", ref, ["latest", *(info.id for info in infos)])


def _latest(store: Store, back: int) -> Path:
    infos: list[RunInfo] = [info for info in store.runs() if info.readable]
    if not infos:
        raise UsageError("there is no latest run", why=f"no runs in {store.place}", do="measure something first: steelyard run")
    if back >= len(infos):
        raise UsageError(f"no run latest~{back}", why=f"the store has {len(infos)}", do=f"the oldest is latest~{len(infos) - 1}")
    return store.at_hand(infos[back].path)


def _as_path(ref: str) -> Path | None:
    """The run folder that a path leads to; a file or folder that is not a run is an error."""
    path = existing(ref)
    if path is None:
        return None
    try:
        if path.is_file():
            if path.name != "run.jsonl":
                raise StoreError(f"not a run: {ref!r}", do="name a run folder or the run.jsonl in it")
            return path.parent
        if not path.is_dir():
            return None
        if not (path / "run.jsonl").is_file():
            raise StoreError(f"not a run: {ref!r}", why="the folder has no run.jsonl", do="name a run folder, or a store with --store DIR")
    except (OSError, ValueError):
        return None
    return path


def _newest(store: Store, text: str) -> Ref:
    case = Case.parse(text).id
    with Index(store) as index:
        index.refresh()
        entry = index.latest(case)
        near = "" if entry else did_you_mean(case, index.find(case.partition("[")[0].partition("@")[0]))
    if entry is None:
        raise UsageError(f"no record of {case}", do=near or f"measure it: steelyard run '{case}'")
    return Ref(read_run(store.folder / entry.folder), entry.number)
