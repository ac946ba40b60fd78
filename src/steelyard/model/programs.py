"""Programs as cases: what their parameters mean, for planning, running and showing them.

One program can make several cases: `{n}` in its words is filled in from the parameter `n`, so that a scan is an axis like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steelyard.model.values import value_text

PROGRAM = "command"
"""Name of the workload that runs programs."""
ARGV, NAME, PREPARE = "argv", "name", "prepare"
OWN = (ARGV, NAME, PREPARE)
_PLACE = re.compile(r"\{([^{}]+)\}")


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Text with the values of axes in place of `{NAME}`; other braces are left as they are."""
    return _PLACE.sub(lambda found: _word(values[found[1]]) if found[1] in values else found[0], text)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value)


def used(texts: Iterable[str], names: Iterable[str]) -> list[str]:
    """The axes that occur as `{NAME}` in any of the texts."""
    found = {name for text in texts for name in _PLACE.findall(text)}
    return [name for name in names if name in found]


def values_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """The values to fill in: every parameter except the program's own."""
    return {name: value for name, value in params.items() if name not in OWN}


def words_of(params: Mapping[str, Any]) -> list[str]:
    """The program with its arguments as it is started; empty if a record has no list of words."""
    argv, values = params.get(ARGV), values_of(params)
    return [filled(str(word), values) for word in argv] if isinstance(argv, Sequence) and not isinstance(argv, str) else []


def preparation(params: Mapping[str, Any]) -> str:
    """The shell command before each run; empty if there is none."""
    return filled(str(params.get(PREPARE) or ""), values_of(params))
