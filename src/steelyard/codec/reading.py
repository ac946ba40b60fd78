"""Read files that people write: all mistakes in a file are collected, each with its line and key path."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from steelyard.errors import Mistakes, UsageError, did_you_mean

T = TypeVar("T")
MOST_TOLD = 50
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def line_of(text: str, key: str) -> int | None:
    """The line on which a key is set; None if there is no such line or more than one."""
    pattern = re.compile(rf"""(?<![\w-])["']?{re.escape(key)}["']?\s*(?:[=:]|\]|\.[\w."'-]+\s*[=:\]])""")
    found = [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line) and line.lstrip()[0] != "#"]
    return found[0] if len(found) == 1 else None


class CheckedFile:
    """One file being read, and the mistakes found in it so far."""

    def __init__(self, where: str, text: str) -> None:
        self.where, self.text = where, text
        self.mistakes: list[tuple[str, str, str]] = []
        self.more = 0

    def wrong(self, path: str, what: str, do: str = "", near: str | None = None) -> None:
        """Add a mistake, with its line if that is unambiguous; `near` is text on that line. The number of mistakes kept is limited."""
        if len(self.mistakes) >= MOST_TOLD:
            self.more += 1
            return
        key = re.sub(r"\[\d+\]$", "", path.rpartition(".")[2] or path)
        line = line_of(self.text, key)
        if near is not None:
            hits = [number for number, row in enumerate(self.text.splitlines(), 1) if near in row]
            line = hits[0] if len(hits) == 1 else line
        self.mistakes.append((f"{self.where}:{line}" if line else self.where, f"{path}: {what}", do))

    def known(self, table: Mapping[Any, Any], path: str, allowed: Iterable[str]) -> None:
        """Add a mistake for every key that is not in `allowed`."""
        names = sorted(allowed)
        for key in table:
            if key not in names:
                whole = f"{path}.{key}" if path else str(key)
                self.wrong(whole, f"unknown key (allowed: {', '.join(names)})", did_you_mean(str(key), names))

    def read(self, table: Mapping[str, Any], path: str, key: str, reader: Callable[[Any], T], default: T, near: str | None = None) -> T:
        """The value of a key, or the default if it is missing or a mistake."""
        if key not in table:
            return default
        try:
            return reader(table[key])
        except UsageError as error:
            self.wrong(f"{path}.{key}" if path else key, error.what, error.do, near)
        return default

    def table(self, value: Any, path: str) -> Mapping[str, Any]:
        """A table, or an empty one if the value is something else, which is a mistake."""
        if isinstance(value, dict):
            return value
        self.wrong(path, f"expected a table, not {shown(value)}")
        return {}

    def tables(self, data: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The tables of an array, each with its key path; a single table is an array of one."""
        value = data.get(key, [])
        whole = [(f"{key}[{index}]", table) for index, table in enumerate(value)] if isinstance(value, list) else [(key, value)]
        for path, table in whole:
            if not isinstance(table, dict):
                self.wrong(path, f"expected a table, not {shown(table)}")
        return [(path, table) for path, table in whole if isinstance(table, dict)]

    def finish(self) -> None:
        """Raise all mistakes as one error, if there are any."""
        found = [UsageError(what, do=do, where=where) for where, what, do in self.mistakes]
        if len(found) == 1:
            raise found[0]
        if found:
            raise Mistakes(found, where=self.where, more=self.more)


def expect(good: bool, expected: str, value: Any) -> None:
    """Raise for a value of the wrong kind, with the same wording everywhere."""
    if not good:
        raise UsageError(f"expected {expected}, not {shown(value)}")


def shown(value: Any) -> str:
    """A value for a message, cut if it is long."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that cannot be written"
    return text if len(text) <= 60 else f"{text[:57]}…"


def text_value(value: Any) -> str:
    """The value if it is text that is not empty and has no control characters; raise otherwise."""
    expect(isinstance(value, str) and bool(value.strip()), "text", value)
    expect(not _CONTROL.search(value), "text without control characters", value)
    return str(value)


def choice(names: Iterable[str]) -> Callable[[Any], Any]:
    """Return a reader that accepts one of some names."""

    def read(value: Any) -> Any:
        if value not in tuple(names):
            raise UsageError(f"expected one of {', '.join(names)}, not {shown(value)}", do=did_you_mean(str(value), names))
        return str(value)

    return read


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of reasonable size; booleans are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def quantity(read: Callable[[str], float], expected: str, fits: Callable[[float], bool]) -> Callable[[Any], float]:
    """Return a reader of numbers with or without a unit."""

    def reader(value: Any) -> float:
        number = value
        if isinstance(value, str):
            try:
                number = read(value)
            except OverflowError:
                number = math.inf
        expect(is_number(number) and fits(number), expected, value)
        return float(number)

    return reader
