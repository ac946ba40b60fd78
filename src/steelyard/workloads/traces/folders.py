"""Traces of several ranks as one case: a folder with `rank-N.json` of each, or one trace that all of them read."""

from __future__ import annotations

from pathlib import Path

from steelyard.errors import UsageError
from steelyard.model.define import OpenedFile
from steelyard.traces.comms import rank_files
from steelyard.traces.reading import TraceHeader
from steelyard.traces.steps import Trace

ONE, EACH = "one", "each"
"""Whether all ranks read one trace, or each its own."""


def opened(path: Path) -> OpenedFile:
    """A trace with what lies beside it, or the traces of all ranks together."""
    if not path.is_dir():
        return OpenedFile(path, parts=_beside(path))
    files = list(rank_files(path).values())
    parts = (*files[1:], *(part for file in files for part in _beside(file)))
    return OpenedFile(files[0], parts=parts, params={"traces": EACH}, ranks=len(files), doc=f"traces of {len(files)} ranks")


def of_rank(first: Path, traces: str, rank: int) -> Path:
    """The trace that a rank reads."""
    if traces == ONE:
        return first
    files = rank_files(first.parent)
    if rank not in files:
        raise UsageError(f"{first.parent} has no trace of rank {rank}", do=f"give --ranks {len(files)}, or name one trace for all ranks")
    return files[rank]


def _beside(file: Path) -> tuple[Path, ...]:
    folder = Trace(file, TraceHeader(), ()).resources
    return tuple(sorted(item for item in folder.iterdir() if item.is_file() and not item.is_symlink())) if folder else ()
