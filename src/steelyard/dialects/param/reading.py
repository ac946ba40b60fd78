"""Read handwritten JSON: repeated keys are found, and mistakes are reported with their line."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.files import SHEET, check_values, limit, read_text

Place = tuple[str | int, ...]
"""The place of something in a JSON text: keys and positions from the outside in."""

LONGEST_NUMBER = 100
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|\n|[^\s{}\[\]:,"]+')
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class JsonText:
    """One JSON text: its data, and the keys that are repeated in one object, each with the line of the second."""

    where: str
    text: str
    data: Any
    twice: tuple[tuple[Place, int], ...] = ()

    def lines(self, places: Collection[Place]) -> dict[Place, int]:
        """Return the line of each place, or of the nearest enclosing thing that is in the text."""
        wanted = {place[:size] for place in places for size in range(1, len(place) + 1)}
        found: dict[Place, int] = {}
        for place, line, _ in _walk(self.text) if wanted else ():
            if place in wanted:
                found.setdefault(place, line)
        around = {place: [found[place[:size]] for size in range(len(place), 0, -1) if place[:size] in found] for place in places}
        return {place: lines[0] for place, lines in around.items() if lines}


def read(path: Path) -> JsonText:
    """Read the JSON of a file. Workers use this too, so it does not need the codec package."""
    text = read_text(path, SHEET)
    check_values(text.encode(), limit(SHEET), str(path))
    return parse(text, str(path))


def parse(text: str, where: str) -> JsonText:
    """Parse a JSON text; the error for invalid JSON names the line."""
    repeated = False

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        table = dict(pairs)
        repeated = repeated or len(table) < len(pairs)
        return table

    try:
        data = json.loads(text, object_pairs_hook=keep, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise UsageError(f"not valid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None
    except RecursionError:
        raise UsageError("nested too deeply to be read", where=where) from None
    twice = tuple((place, line) for place, line, again in _walk(text) if again) if repeated else ()
    return JsonText(where, text, data, twice)


def _whole(digits: str) -> int | float:
    """Convert digits; a number that is too long becomes a float, which no check accepts as a size."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else float(digits)


def place_text(place: Place) -> str:
    """Return a place as text: `["torch.add"].config[0].input[0].args[1].dtype`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(str(step)):
            text += f".{step}" if text else str(step)
        else:
            text += f"[{json.dumps(str(step), ensure_ascii=False)}]"
    return printable(text)


def printable(text: str, longest: int = 400) -> str:
    """Make text from a file safe for a terminal: control characters become visible, and long text is cut."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return cut if cut.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


def _walk(text: str) -> Iterator[tuple[Place, int, bool]]:
    """Yield every key and list element of a valid JSON text, with its line and whether its object had that key before."""
    line = 1
    place: list[str | int] = []
    seen: list[set[str] | None] = []
    key_next = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "}]":
            seen.pop()
            place.pop()
            key_next = False
        elif token == ",":
            key_next = seen[-1] is not None
            if not key_next:
                place[-1] = int(place[-1]) + 1
        elif token != ":":
            keys = seen[-1] if seen else None
            if key_next and keys is not None:
                name = json.loads(token)
                place[-1] = name
                yield tuple(place), line, name in keys
                keys.add(name)
                key_next = False
                continue
            if seen and keys is None:
                yield tuple(place), line, False
            if token in "{[":
                key_next = token == "{"
                seen.append(set() if key_next else None)
                place.append("" if key_next else 0)
