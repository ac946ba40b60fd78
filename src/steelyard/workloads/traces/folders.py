"""Traces of several ranks as one case: a folder with `rank-N.json` of each, or one trace that all of them read."""

from __future__ import annotations

from pathlib import Path

from steelyard import files
from steelyard.errors import UsageError
from steelyard.model.define import OpenedFile
from steelyard.traces.comms import rank_files
from steelyard.traces.reading import TraceHeader
from steelyard.traces.steps import Trace

KINDS = (".py", ".dat")
"""Files in a trace's resources that a replay reads."""


def opened(path: Path) -> OpenedFile:
    """Return a trace, or the traces of all ranks together, as one case."""
    if not path.is_dir():
        return OpenedFile(path)
    count = len(rank_files(path))
    return OpenedFile(path, ranks=count, doc=f"traces of {count} ranks")


def identify(path: Path) -> str:
    """Return the hash of the content of traces and of the files recorded with them."""
    own = list(rank_files(path).values()) if path.is_dir() else [path]
    return files.sha256_of([part for file in own for part in parts(file)])


def parts(file: Path) -> list[Path]:
    """Return a trace and the files recorded with it: integer tensors and Triton kernels."""
    folder = Trace(file, TraceHeader(), ()).resources
    found = folder.iterdir() if folder else ()
    return [file, *sorted(item for item in found if item.suffix in KINDS and item.is_file() and not item.is_symlink())]


def of_rank(path: Path, rank: int) -> Path:
    """Return the trace that a rank reads: its own in a folder, or the one file for all ranks."""
    if not path.is_dir():
        return path
    found = rank_files(path)
    if rank not in found:
        raise UsageError(f"{path} has no trace of rank {rank}", do=f"give --ranks {len(found)}, or name one trace for all ranks")
    return found[rank]
