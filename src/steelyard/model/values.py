"""Parameter values as text: the part of the case grammar inside brackets.

A value is null, a boolean, a number, a string, or a short flat list of those. Anything longer or
nested is named by a digest; its full text is kept in the Record.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.errors import UsageError

Value = Any
Pairs = tuple[tuple[str, Value], ...]

LONGEST = 60
DEEPEST = 20
AROUND = 80
_BARE = re.compile(r"[A-Za-z0-9_./*+-]+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_WORDS = {"true": True, "false": False, "null": None, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}


HASH = re.compile(r"[0-9a-f]{64}")
"""SHA-256 as text."""


def file_value(file: str, sha256: str, *, name: str = "") -> dict[str, Value]:
    """A file as a parameter: ids have only its content hash, so a moved file is the same case and a changed file is a different one.

    `name` is the name shown to people.
    """
    return {"file": file, "sha256": sha256, "name": name or file.rsplit("/", 1)[-1]}


def is_file_value(value: Value) -> bool:
    """Whether a value is a file with its hash, as `file_value` makes it."""
    if not isinstance(value, Mapping) or set(value) != {"file", "sha256", "name"}:
        return False
    return all(isinstance(text, str) for text in value.values()) and bool(HASH.fullmatch(value["sha256"]))


@dataclass(frozen=True)
class Digest:
    """A value known only by the hash of its full text."""

    hex: str

    def __str__(self) -> str:
        return f"#{self.hex}"


def digest(value: Value) -> Digest:
    """Name a long value by the hash of its canonical JSON."""
    return Digest(hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()[:12])


def render(value: Value) -> str:
    """Write one value so that `parse` gives it back."""
    if isinstance(value, Digest):
        return str(value)
    if isinstance(value, Mapping) and is_file_value(value):
        return f"#{value['sha256'][:12]}"
    several = isinstance(value, (list, tuple))
    if isinstance(value, Mapping) or (several and any(isinstance(item, (list, tuple, dict, Digest)) for item in value)):
        return str(digest(_plain(value)))
    text = f"[{','.join(map(_scalar, value))}]" if several else _scalar(value)
    return text if len(text) <= LONGEST else str(digest(_plain(value)))


def render_list(values: Iterable[Value]) -> str:
    """Plain values as `[a,b]`, in full whatever their length, because a value on a command line cannot be looked up by its hash."""
    return f"[{','.join(map(_scalar, values))}]"


def _plain(value: Value) -> Value:
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Digest) else value


def _scalar(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        plain = _BARE.fullmatch(value) and value not in _WORDS and not _NUMBER.fullmatch(value)
        return value if plain else json.dumps(value, ensure_ascii=True)
    raise UsageError(
        f"a parameter cannot be a {type(value).__name__}: {value!r}", do="use numbers, strings, booleans, null, lists or tables"
    )


def deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and tables are nested deeper than this, found without recursion."""
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(levels):
        inside = (part.values() if isinstance(part, dict) else part for part in level)
        level = [item for items in inside for item in items if isinstance(item, (dict, list, tuple))]
        if not level:
            return False
    return True


def value_text(value: Any) -> str:
    """A value as in a case id, a file also with its name; a value that no id can have is written as Python writes it."""
    if is_file_value(value):
        return f"{value['name']}#{value['sha256'][:6]}"
    try:
        return render(value)
    except UsageError:
        return str(value)


def render_pairs(pairs: Iterable[tuple[str, Value]]) -> str:
    """`k=v,k=v` in the order given; empty for none."""
    return ",".join(f"{key}={render(value)}" for key, value in pairs)


class Scanner:
    """A cursor over one id, with errors that point at the place."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str) -> UsageError:
        start = max(0, self.at - AROUND)
        shown = self.text[start : self.at + AROUND]
        mark = " " * (self.at - start) + "^"
        return UsageError(f"not a case id: expected {expected}", why=shown, do=f"{mark} here")

    def done(self) -> bool:
        return self.at >= len(self.text)

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            raise self.fail(expected)
        self.at = found.end()
        return found.group()

    def key(self) -> str:
        return self.match(KEY, "a parameter name")

    def value(self, depth: int = 0) -> Value:
        if depth > DEEPEST:
            raise self.fail(f"lists at most {DEEPEST} deep")
        if self.peek('"'):
            try:
                text, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
            except json.JSONDecodeError:
                raise self.fail("a closed string") from None
            return text
        if self.take("#"):
            return Digest(self.match(re.compile(r"[0-9a-f]{12}"), "12 hexadecimal digits"))
        if self.take("["):
            return self.items(depth + 1)
        return word(self.match(_BARE, "a value"))

    def items(self, depth: int) -> list[Value]:
        found: list[Value] = []
        while not self.take("]"):
            if found and not self.take(","):
                raise self.fail("',' or ']'")
            found.append(self.value(depth))
        return found

    def pairs(self) -> Pairs:
        """`[k=v,…]` if there is a bracket, else nothing."""
        found: dict[str, Value] = {}
        if not self.take("["):
            return ()
        while not self.take("]"):
            if found and not self.take(","):
                raise self.fail("',' or ']'")
            key = self.key()
            if key in found:
                raise UsageError(f"parameter {key!r} is given twice", why=self.text)
            if not self.take("="):
                raise self.fail("'='")
            found[key] = self.value()
        return tuple(found.items())


def word(text: str) -> Value:
    """Read a bare word: a constant, a number, or itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[+-]?\d{1,4000}", text) else float(text)
    return text


def parse_value(text: str) -> Value:
    """Read a value typed by a user; unquoted text with special characters is a string."""
    scanner = Scanner(text)
    try:
        value = scanner.value()
    except UsageError:
        return text
    return value if scanner.done() else text
