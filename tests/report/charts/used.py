"""The columns a spec draws on, in encodings, tooltips, sort orders and expressions alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_DATUM = re.compile(r"\bdatum\.(\w+)")
_FIRST_ROW = re.compile(r"data\('rows'\)\[0\]\.(\w+)")


def used(spec: Any) -> set[str]:
    """What the rows have to bring: all names but those that the spec makes for itself, and the value of an axis label."""
    return set(_named(spec)) - set(_made(spec)) - {"value"}


def _named(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield from _DATUM.findall(part)
        yield from _FIRST_ROW.findall(part)
    elif isinstance(part, list):
        for item in part:
            yield from _named(item)
    elif isinstance(part, dict):
        yield from ([part["field"]] if "field" in part else [])
        for item in part.values():
            yield from _named(item)


def _made(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _made(item)
    elif isinstance(part, dict):
        yield from ([part["as"]] if "as" in part else [])
        for item in part.values():
            yield from _made(item)
