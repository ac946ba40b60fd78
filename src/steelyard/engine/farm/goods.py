"""The users' files that a worker loads or imports, packed into one archive per run for hosts that do not share our files.

A station unpacks them below a folder of its own, at the paths that they have here, so that every path to them changes in the same way.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from steelyard.engine import sides
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.errors import SteelyardError, UsageError
from steelyard.model.units import plain

MOST = 128 << 20
"""Most bytes of users' files, before packing."""


def packed(plan: Plan, here: Path) -> bytes:
    """Return the archive of a plan's files; empty if it needs none."""
    files = sorted(set(_files(plan, here)))
    if (size := sum(file.stat().st_size for file in files)) > MOST:
        why = f"the cases can import {len(files)} files of yours, {plain(size, 'B')} in all; the limit is {plain(MOST, 'B')}"
        raise UsageError("your files are too large to be sent", why=why, do="run from a smaller folder, or from one that the hosts share")
    if not files:
        return b""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            about = zipfile.ZipInfo(str(file).lstrip("/"))
            about.external_attr = (file.stat().st_mode & 0o700) << 16
            archive.writestr(about, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return found.getvalue()


def _files(plan: Plan, here: Path) -> Iterator[Path]:
    """Yield the files that are named, the programs that are run, and the modules that can be imported from a place's folders."""
    yield from (Path(file) for file in plan.experiment.files)
    yield from (here / name for name in plan.sources if (here / name).is_file())
    folders = set()
    for job in (*plan.jobs, *plan.pairs):
        yield from map(Path, job.side.files if job.side else ())
        for place in _places(job):
            folders |= {*map(Path, place.paths), *([Path(place.folder)] if place.folder else [])}
    for folder in sorted(folders):
        yield from (folder / module for module in sides.modules_below(folder))


def _places(job: Job) -> Iterable[Place]:
    return (job.place, job.side.place) if job.side else (job.place,)


def unpack(data: bytes, folder: Path) -> None:
    """Unpack the files below a folder; a path that leads out of it is refused."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(item.file_size for item in archive.infolist()) > MOST:
            raise SteelyardError("the archive of files is larger than any that is sent")
        for item in archive.infolist():
            parts = PurePosixPath(item.filename).parts
            if not parts or ".." in parts or item.filename.startswith("/"):
                raise SteelyardError(f"the archive of files contains {item.filename[:80]!r}", why="this path leads out of its folder")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(item))
            target.chmod(0o600 | (item.external_attr >> 16 & 0o100))


def moved(path: str, folder: Path | None) -> str:
    """Return where a path of the conductor's host is on this host; unchanged if the files are shared."""
    return path if folder is None or not path.startswith("/") else str(folder / path.lstrip("/"))
