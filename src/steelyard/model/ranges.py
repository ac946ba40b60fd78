"""Ranges of an axis: many values written as the first, the last, and the step between them."""

from __future__ import annotations

import itertools
import re
from typing import Any

from steelyard.errors import UsageError

MOST_VALUES = 10_000
LARGEST = 1e15
"""Largest number in a range; much beyond it, floats cannot represent every whole number."""
KEYS = ("from", "to", "step")
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_WRITTEN = re.compile(rf"({_NUMBER})\.\.({_NUMBER}):(x?{_NUMBER})")
_FACTOR = re.compile(rf"x({_NUMBER})")
HOW = 'for example {from = 256, to = 8192, step = "x2"}, or step = 128'

Number = int | float


def written(text: str) -> tuple[Number, ...] | None:
    """The values of `256..8192:x2` or `128..1024:128`; None for text that is not a range."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    step = found[3] if found[3].startswith("x") else _number(found[3])
    return values(_number(found[1]), _number(found[2]), step)


def is_table(value: Any) -> bool:
    """Whether a table of an experiment file is a range: it has `from` and `to`, or only keys of a range."""
    return isinstance(value, dict) and bool(value) and ({"from", "to"} <= value.keys() or value.keys() <= set(KEYS))


def from_table(table: dict[Any, Any]) -> tuple[Number, ...]:
    """The values of `{from = 256, to = 8192, step = "x2"}`."""
    if wrong := [str(key) for key in table if key not in KEYS]:
        raise UsageError(f"unknown key {wrong[0]} in a range (allowed: {', '.join(KEYS)})")
    if missing := [key for key in KEYS if key not in table]:
        raise UsageError(f"a range needs {' and '.join(missing)}", do=HOW)
    return values(table["from"], table["to"], table["step"])


def values(first: Any, last: Any, step: Any) -> tuple[Number, ...]:
    """Every value from the first up to the last, which is included if a step falls on it."""
    for name, value in (("from", first), ("to", last)):
        if not _is_number(value):
            raise UsageError(f"{name!r} of a range must be a number, not {str(value)[:40]!r}", do=HOW)
    factor = _FACTOR.fullmatch(step) if isinstance(step, str) else None
    if factor is None and not _is_number(step):
        raise UsageError(f"'step' of a range must be a number, or x2 for twice as much each time, not {str(step)[:40]!r}", do=HOW)
    by = _number(factor[1]) if factor else step
    if first > last:
        raise UsageError(f"a range from {first} to {last} is empty", do="begin with the smaller one")
    if by <= (1 if factor else 0) or (factor and first <= 0):
        why = f"from {first} by {step} never reaches {last}"
        raise UsageError("a range must grow", why=why, do='give a step of more than 0, or a factor of more than "x1" and from more than 0')
    steps = (_round(first * by**turn if factor else first + turn * by) for turn in range(MOST_VALUES + 1))
    found = tuple(itertools.takewhile(lambda value: value <= last, steps))
    if len(found) > MOST_VALUES:
        raise UsageError(f"a range of more than {MOST_VALUES} values", do="take larger steps, or give some of them to each of several runs")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _number(text: str) -> Number:
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _round(value: Number) -> Number:
    """Round floating-point noise away: 0.3, not 0.30000000000000004."""
    return value if isinstance(value, int) else float(f"{value:.12g}")
