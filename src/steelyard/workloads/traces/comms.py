"""The communication of a recorded step as a workload: `steelyard run comms:FOLDER` repeats the calls between ranks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import UsageError
from steelyard.model.define import OpenedFile, workload
from steelyard.model.task import Task
from steelyard.traces.comms import KINDS, RankComms, rank_files, read_comms, shrunk
from steelyard.workloads.traces import folders

if TYPE_CHECKING:
    from steelyard.workloads.traces._comms import CommChoice

SWITCHES = {"blocking": False, "check": True, "rebalance": False, "reuse": False, "timestamps": False, "shrink": False}
AXES: Mapping[str, Sequence[Any]] = {
    "subgraph": [""], "step": [None], "allow": [None], "most": [None], "last": [100],
    **{name: [value] for name, value in SWITCHES.items()},
}  # fmt: skip


def _refuse(params: Mapping[str, Any], member: str) -> None:
    """Refuse invalid parameters before anything is read."""
    for name, usual in SWITCHES.items():
        if type(params.get(name, usual)) is not bool:
            raise UsageError(f"{name} of a communication replay is {params[name]!r:.60}", do="give true or false")
    if type(params.get("last", 1)) is not int or params.get("last", 1) < 1:
        raise UsageError(f"last of a communication replay is {params['last']!r:.60}", do="give a whole number of at least 1")
    for name in ("step", "most"):
        value = params.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise UsageError(f"{name} of a communication replay is {value!r:.60}", do="give a whole number of at least 0")
    for kind in words(params.get("allow")):
        if kind not in KINDS:
            raise UsageError(f"allow names {kind!r:.60}, which is not a kind of call", do=f"use {', '.join(KINDS)}")


def _contents(path: Path) -> list[OpenedFile]:
    """Return one case for a folder with rank-N.json, one rank per file, or for a single file that all ranks read."""
    return [folders.opened(path)] if not path.is_dir() or rank_files(path) else []


@workload(
    "comms",
    axes=AXES,
    tags=["trace", "collective"],
    modes=["eval"],
    opens="file",
    contents=_contents,
    identify=folders.identify,
    refuse=_refuse,
)
def comms(
    file: str, subgraph: str, step: int | None, allow: Any, most: int | None, blocking: bool, check: bool, rebalance: bool,
    last: int, reuse: bool, timestamps: bool, shrink: bool, be: Any,
) -> Task:  # fmt: skip
    """The collectives and messages of a recorded step, repeated between ranks on data of the recorded sizes."""
    from steelyard.workloads.traces._comms import CommChoice

    choice = CommChoice(blocking, check, rebalance, reuse, timestamps, last)
    return build(file, step, subgraph, be, choice, allow=words(allow), most=most, shrink=shrink)


def build(
    file: str, step: int | None, subgraph: str, be: Any, choice: CommChoice, *,
    allow: Sequence[str] = (), most: int | None = None, shrink: bool = False,
) -> Task:  # fmt: skip
    """Return the task of this rank."""
    from steelyard.workloads.traces import _comms, _meeting

    seat = be.seat
    own = _read(str(folders.of_rank(Path(file), seat.rank)), step, subgraph)
    world = max(own.world, len(rank_files(Path(file))) if Path(file).is_dir() else 0)
    if world > seat.size and not shrink:
        raise UsageError(
            f"{world} ranks were recorded, and {seat.size} replay{'s' if seat.size == 1 else ''} them", where=file,
            do=f"give --ranks {world}, or shrink=true to leave the others out",
        )  # fmt: skip
    if world > seat.size:
        own = shrunk(own, seat.rank, seat.size)
    own, left = _meeting.allowed(own, allow, most, one_trace=not Path(file).is_dir() and seat.size > 1)
    if not own.calls and seat.size == 1:
        raise UsageError("the trace has no communication", why="no node is a collective or a message", where=file)
    return _comms.CommReplay.build(own, left, choice, be.join(), be.where).task()


@functools.lru_cache(maxsize=4)
def _read(file: str, step: int | None, subgraph: str) -> RankComms:
    return read_comms(Path(file), step, subgraph or "")


def words(value: Any) -> tuple[str, ...]:
    """Return words from a list, or from text with + between them."""
    return () if value is None else tuple(value.split("+")) if isinstance(value, str) else tuple(value)
