"""A JSON document with a list of rows, for another system's results: whole after every row, and what it held before stays."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.files import RESULTS, read_whole
from steelyard.terminal import plain, save


class ListFile:
    """The document being written; `content` is all of it, and what else is put there is written with the next row."""

    def __init__(self, path: Path, key: str, beside: Container[str] = ()) -> None:
        self.path, self.content = path, _held(path, key, beside)
        self.rows: list[Any] = self.content.setdefault(key, [])

    def write(self, row: Mapping[str, Any]) -> None:
        """One row more, on disk when this returns."""
        self.rows.append(row)
        save(self.path, json.dumps(plain(self.content), indent=2) + "\n")

    def close(self) -> None:
        """Nothing is left to write."""


def _held(path: Path, key: str, beside: Container[str]) -> dict[str, Any]:
    """What a document has that is to be added to; another kind of file, which has no such list but other keys, is not touched."""
    if not path.exists():
        return {}
    try:
        found = json.loads(read_whole(path, RESULTS) or b"{}") if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot add to {path}", why=f"it is no JSON: {error}", do="name another file with -o") from None
    fits = isinstance(found, dict) and (isinstance(found[key], list) if key in found else all(name in beside for name in found))
    if not fits:
        raise UsageError(f"cannot add to {path}", why="it is no result file of this tool", do="name another file with -o")
    return found
