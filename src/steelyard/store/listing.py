"""Summaries of runs for lists, without reading each run to its end."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from steelyard.errors import StoreError
from steelyard.files import LINE, TooLarge, limit, open_plain
from steelyard.store.moments import FUTURE, ahead, moment, stamped
from steelyard.store.runs import NAMED, Header, Run, RunInfo, read_line, read_run
from steelyard.store.seals import Seal

_TAIL = 65536


def newest_first(infos: Iterable[RunInfo]) -> list[RunInfo]:
    """Newest first, and those dated in the future last, since a wrong clock would otherwise keep its run the latest."""
    return sorted(infos, key=lambda info: (not ahead(info.created), moment(info.created), info.path.name), reverse=True)


def info_of(folder: Path) -> RunInfo:
    """The summary of a run for a list, usually without reading all of it: the seal has the counts."""
    named = NAMED.fullmatch(folder.name)
    id, created = (named[2], stamped(named[1])) if named else (folder.name, "")
    try:
        with open_plain(folder / "run.jsonl") as file:
            name, header = read_line(file.readline(limit(LINE) + 1).rstrip(b"\n"), limit(LINE))
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read()
            last = tail.rstrip(b"\n").rpartition(b"\n")[2]
            place = file.tell() - len(tail) + tail.rfind(last)
        if name != "header":
            raise StoreError("the run has no readable header", why=f"it begins with a {name}")
        seal = _seal(last)
        quick = seal is not None and seal.size in (0, place)
        run = Run(folder, header, seal=seal) if quick else _unsealed(folder, header)
    except (OSError, StoreError) as error:
        return RunInfo(id, created, folder, warning=f"{folder.name}: {' '.join(str(error).split())}", readable=False)
    late = [f"it {FUTURE}"] if ahead(header.created) else []
    return RunInfo(
        id=header.id or id,
        created=header.created or created,
        path=folder,
        sealed=run.seal is not None,
        counts=run.seal.counts if run.seal and quick else {**Counter(record.status for record in run.records)},
        experiment=header.experiment,
        fingerprint=header.fingerprint,
        machine_key=header.machine_key,
        warning=next(iter([*run.warnings, *late]), ""),
        command=header.command,
    )


def _unsealed(folder: Path, header: Header) -> Run:
    """A run without a seal, read for its counts; a run that is too large has no counts, and is still listed."""
    try:
        return read_run(folder)
    except TooLarge as error:
        return Run(folder, header, warnings=(f"{folder.name}: {' '.join(str(error).split())}",))


def _seal(line: bytes) -> Seal | None:
    """The seal if this line is one, else None; with its counts the rest need not be read."""
    with contextlib.suppress(StoreError):
        value = read_line(line, limit(LINE))[1] if line.startswith(b'{"seal"') else None
        return value if isinstance(value, Seal) else None
    return None
