"""A file of JSON lines for another system's results: each line whole and at once, so that a kill keeps what was measured."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from steelyard.errors import StoreError
from steelyard.files import RESULTS, read_whole


class RowFile:
    """The file being written, by us alone; the first `keep` bytes of one that is there stay."""

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
        """One line, flushed."""
        try:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        """Nothing is left to flush; what could not be written has been told of."""
        with contextlib.suppress(OSError):
            self._file.close()


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file that is continued, and how many of its bytes are whole lines; a line that is no row is left where it is."""
    try:
        content = read_whole(path, RESULTS)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StoreError("cannot read the file that is continued", why=error.strerror or str(error), where=str(path)) from None
    whole = content[: content.rfind(b"\n") + 1]
    found = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [row for row in found if isinstance(row, dict)], len(whole)


def unwritable(path: Path, error: OSError) -> StoreError:
    """What was written before stays."""
    return StoreError("cannot write the output file", why=error.strerror or str(error), do="name another with -o", where=str(path))
