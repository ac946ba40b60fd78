"""A JSON document with a list of rows, for another system's results: complete after every row, with its earlier content kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.files import RESULTS, read_whole
from steelyard.terminal import plain, save


class ListFile:
    """The document being written; `content` is the whole document, and anything else put there is written with the next row.

    `beside` is an example of what a document may have besides its list: tables with these keys, lists and texts.
    """

    def __init__(self, path: Path, key: str, beside: Mapping[str, Any]) -> None:
        _check_place(path)
        self.path, self.content = path, _held(path, key, beside)
        self.rows: list[Any] = self.content.setdefault(key, [])

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one row and write the document before returning."""
        self.rows.append(row)
        save(self.path, json.dumps(plain(self.content), indent=2) + "\n")

    def close(self) -> None:
        """Nothing to do: every row is written at once."""


def _check_place(path: Path) -> None:
    """Raise an error, before anything runs, if the file cannot be written; a pipe or a device is simply written to."""
    try:
        target = path.resolve()
        folder, plainly = target.parent, target.is_file() or not target.exists()
        why = "it is a folder" if target.is_dir() else "" if folder.is_dir() else f"there is no folder {folder}"
    except (OSError, RuntimeError) as error:
        folder, plainly, why = path.parent, True, getattr(error, "strerror", None) or str(error)
    if not why and not os.access(folder if plainly else target, os.W_OK):
        why = f"no permission to write to {folder if plainly else target}"
    if why:
        raise UsageError(f"cannot write {path}", why=why, do="name another file with -o")


def _held(path: Path, key: str, beside: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the document to add to; an error for any other kind of file (other keys and no such list), which is not touched."""
    if not path.exists():
        return {}
    try:
        found = json.loads(read_whole(path, RESULTS) or b"{}") if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot add to {path}", why=f"it is not JSON: {error}", do="name another file with -o") from None
    fits = isinstance(found, dict) and (isinstance(found[key], list) if key in found else all(name in beside for name in found))
    if not fits or not _like(found, beside):
        raise UsageError(f"cannot add to {path}", why="it is not a result file of this tool", do="name another file with -o")
    return found


def _like(value: Any, example: Any) -> bool:
    """Whether a value has the type of an example; in a table, every key that both have must fit as well."""
    if type(value) is not type(example):
        return False
    return not isinstance(example, dict) or all(_like(value[key], part) for key, part in example.items() if key in value)
