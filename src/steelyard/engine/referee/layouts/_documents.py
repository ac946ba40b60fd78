"""Read the YAML and JSON that problems are written in; only the conductor does, because workers have no YAML parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.codec import parsing
from steelyard.errors import UsageError


def read_yaml(path: Path) -> Any:
    """The data of a YAML file."""
    return parsing.parse(files.read_text(path), str(path), "yaml", aliases=True)


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file."""
    return table(parsing.parse(files.read_text(path, files.SHEET), str(path), "json"), str(path))


def json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a file that has one in each line, each with its file and line number."""
    for number, line in enumerate(files.read_text(path, files.SHEET).splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, table(parsing.parse(line, where, "json"), where)


def table(data: Any, where: str) -> Mapping[str, Any]:
    """Return data that must be a table of names, or raise."""
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise UsageError("not a table of names and values", where=where)
    return data


def text_of(data: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text that must be there, or raise."""
    value = data.get(key)
    if not isinstance(value, str) or not value:
        what = f"{key} is missing" if key not in data else f"{key} is not a text"
        raise UsageError(what, do=f'write "{key}": "…"', where=where)
    return value
