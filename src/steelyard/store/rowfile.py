"""Files of JSON lines for another system's results: each line is written whole and at once, so that a killed run keeps its results."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from steelyard.errors import StoreError, UsageError
from steelyard.files import RESULTS, lines, open_plain, read_whole


class RowFile:
    """The file being written, locked for this run; the first `keep` bytes of an existing file stay."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(keep)
        except OSError as error:
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise unwritable(path, error) from None
            raise StoreError("another run is writing to it", do="name another file with -o, or wait for it", where=str(path)) from None

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one line and flush it."""
        try:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        """Close the file; every line is flushed already, and failures were reported."""
        with contextlib.suppress(OSError):
            self._file.close()


class SharedRowFile:
    """A file that several runs append lines to at the same time; a run can read the lines of other runs as the file grows.

    While it is open, no other run can start the file over.
    """

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self.path, self._inode, self._end = path, -1, 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _claim(path, anew=anew)
        except OSError as error:
            raise unwritable(path, error) from error

    def added(self, anew: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """The lines added since the last call; a line without a line break is read again next time.

        A file that was replaced or shortened is read from its beginning, after `anew` was called; a deleted file counts as empty.
        """
        try:
            file = open_plain(self.path)
        except FileNotFoundError:
            self._inode = -1
            anew()
            return
        except OSError as error:
            raise StoreError("cannot read the file of rows", why=error.strerror or str(error), where=str(self.path)) from None
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._end:
                self._inode, self._end = found.st_ino, 0
                anew()
            file.seek(self._end)
            for line in lines(file, str(self.path)):
                self._end += len(line) if line.endswith(b"\n") else 0
                yield line

    def append(self, row: Mapping[str, Any]) -> None:
        """Append one line, on disk when this returns; an incomplete line before it gets its line break first."""
        data = json.dumps(row).encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                left = b"\n" + data if torn else data
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Release the lock, so that other runs may start the file over."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _claim(path: Path, *, anew: bool) -> int | None:
    """Take a shared lock on the file, which is created or started over if necessary; None if the file system has no locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if anew else fcntl.LOCK_SH)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(
                f"another run is writing to {str(path)!r}",
                why="starting it over would delete its rows",
                do="wait for it, or name another file",
            ) from None
        except OSError:
            os.close(descriptor)
            if anew:
                path.unlink(missing_ok=True)
                path.touch()
            return None
        if not _is_at(path, descriptor):
            os.close(descriptor)
        elif anew:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            anew = False
        else:
            return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the path still names the same file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file to continue, and how many bytes are whole lines; other lines are skipped and stay in the file."""
    try:
        content = read_whole(path, RESULTS)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StoreError("cannot read the file to continue", why=error.strerror or str(error), where=str(path)) from None
    whole = content[: content.rfind(b"\n") + 1]
    found = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [row for row in found if isinstance(row, dict)], len(whole)


def unwritable(path: Path, error: OSError) -> StoreError:
    """The error for a failed write; earlier content is kept."""
    return StoreError("cannot write the output file", why=error.strerror or str(error), do="name another file", where=str(path))
