"""Read records from the database's files: an array, one object, or lines of either; plain or gzip; one file or a folder of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.codec.reading import shown
from steelyard.errors import Mistakes, UsageError
from steelyard.files import RESULTS, check_values, limit, read_whole, unpacked, unreadable

MOST_TOLD = 20
ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True)
class Placed:
    """One record, and its place: `results.json:12`, or `results.json[3]` in an array."""

    where: str
    record: dict[str, Any]


@dataclass
class RecordsFile:
    """The records of a file, and errors with file and line for its invalid parts."""

    found: list[Placed] = field(default_factory=list)
    trouble: list[UsageError] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """A line for each skipped part; only the first ones if there are very many."""
        told = [f"{error.where} was skipped: {error.what}" for error in self.trouble[:MOST_TOLD]]
        more = len(self.trouble) - len(told)
        return [*told, *([f"… and {more} more records were skipped"] if more > 0 else [])]

    def refuse(self) -> None:
        """Raise mistakes instead of only reporting them."""
        if len(self.trouble) == 1:
            raise self.trouble[0]
        if self.trouble:
            raise Mistakes(self.trouble[:MOST_TOLD], more=max(0, len(self.trouble) - MOST_TOLD))


def files(paths: Sequence[Path]) -> list[Path]:
    """The files of the given paths: a folder means the .json and .json.gz files directly in it."""
    found: list[Path] = []
    for path in paths:
        try:
            folder = path.is_dir()
            found += sorted(item for item in path.iterdir() if item.name.endswith(ENDINGS) and item.is_file()) if folder else [path]
        except (OSError, ValueError) as error:
            raise unreadable(path, error if isinstance(error, OSError) else OSError(22, str(error))) from None
    return list(dict.fromkeys(found))


def read(path: Path) -> RecordsFile:
    """The records of a file that a user named."""
    try:
        content = unpacked(read_whole(path, RESULTS), RESULTS, str(path))
    except OSError as error:
        raise unreadable(path, error) from None
    check_values(content, limit(RESULTS), str(path))
    return parse(content, str(path))


def parse(content: bytes, name: str) -> RecordsFile:
    """The records in a text: JSON as a whole, or else line by line; any other line is a mistake. If no line is JSON, the whole
    text is one mistake.
    """
    if not content.strip():
        return RecordsFile(trouble=[UsageError("the file is empty", where=name)])
    try:
        return taken(json.loads(content.decode("utf-8-sig")), name)
    except (ValueError, RecursionError) as error:
        whole = _bad(f"{name}:{getattr(error, 'lineno', 1)}", error)
    made = RecordsFile()
    some = False
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                data = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                made.trouble.append(_bad(f"{name}:{number}", error))
            else:
                some = some or isinstance(data, (dict, list))
                _take(made, data, f"{name}:{number}")
    return made if some else RecordsFile(trouble=[whole])


def taken(data: Any, name: str) -> RecordsFile:
    """The records in decoded JSON."""
    made = RecordsFile()
    _take(made, data, name)
    return made


def _bad(where: str, error: Exception) -> UsageError:
    if isinstance(error, UnicodeDecodeError):
        return UsageError("not text in UTF-8", where=where)
    if isinstance(error, json.JSONDecodeError):
        return UsageError(f"not JSON: {error.msg}", where=where)
    return UsageError(
        f"not JSON: {'nested too deep' if isinstance(error, RecursionError) else 'a number has too many digits'}", where=where
    )


def _take(made: RecordsFile, data: Any, where: str) -> None:
    for place, item in _items(data, where):
        if not isinstance(item, dict):
            made.trouble.append(UsageError(f"expected an object, not {shown(item)}", where=place))
        elif "metric" not in item:
            made.trouble.append(UsageError("metric: is missing, so it is not a record of the database", where=place))
        else:
            made.found.append(Placed(place, item))


def _items(data: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, list):
        yield from ((f"{where}[{place}]", item) for place, item in enumerate(data))
    else:
        yield where, data
