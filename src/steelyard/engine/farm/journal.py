"""The journal of a farm, beside its run: where each attempt went, which stations were lost or set aside. A restarted conductor reads it.

The file is farm.jsonl, a line for each event; `begun` is on the disk before a station gets the attempt, so no number is used twice.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.files import RESULTS, limit, read_whole
from steelyard.store.disk import trouble
from steelyard.store.moments import now

FILE = "farm.jsonl"
_KIND = re.compile(r"[a-z ]{1,40}")


@dataclass(frozen=True)
class JournalEvent:
    """One line: what happened, when, and its other fields."""

    kind: str
    time: str
    words: Mapping[str, Any]

    def number(self, name: str) -> int:
        """Return a field that is an integer; -1 if it is not."""
        found = self.words.get(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else -1

    def text(self, name: str) -> str:
        """Return a field that is text; empty if it is not."""
        found = self.words.get(name)
        return found if isinstance(found, str) else ""


class Journal:
    """The open journal of a run; only this process writes it, since the run is locked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.before = tuple(read_journal(folder))
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        _end_torn_line(self.path, self._fd)

    def write(self, events: Sequence[tuple[str, Mapping[str, Any]]], *, sync: bool = False) -> None:
        """Write some lines at once; with `sync` they are on the disk when it returns."""
        lines = [json.dumps({"event": kind, "time": now(), **words}, separators=(",", ":"), default=str) for kind, words in events]
        try:
            data = "".join(f"{line}\n" for line in lines).encode()
            if os.write(self._fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            raise trouble("write the journal of the farm", self.path, error) from error

    def note(self, kind: str, **words: Any) -> None:
        """Write one line, without waiting for the disk."""
        self.write([(kind, words)])

    def attempts(self) -> dict[int, int]:
        """Return the last attempt number that every group had before this conductor."""
        found: dict[int, int] = {}
        for event in self.before:
            if event.kind == "begun":
                group = event.number("group")
                found[group] = max(found.get(group, 0), event.number("attempt"))
        return found

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_journal(folder: Path) -> Iterator[JournalEvent]:
    """Yield the events of a run's journal, if it has one; incomplete and unknown lines are skipped."""
    path = folder / FILE
    if path.is_symlink() or not path.is_file():
        return
    yield from _events(read_whole(path, RESULTS))


class JournalTail:
    """Reads what was added to a run's journal since the last look; reading all of a long journal every second would keep a CPU busy."""

    def __init__(self, folder: Path) -> None:
        self._path, self._at = folder / FILE, 0

    def more(self) -> Iterator[JournalEvent]:
        """Return the new events; an incomplete last line is left for the next look."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read(limit(RESULTS))
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return _events(whole)


def _events(data: bytes) -> Iterator[JournalEvent]:
    for line in data.splitlines():
        try:
            words = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(words, dict) and _KIND.fullmatch(str(words.get("event", ""))):
            yield JournalEvent(str(words.pop("event")), str(words.pop("time", "")), words)


def _end_torn_line(path: Path, fd: int) -> None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                os.write(fd, b"\n")
