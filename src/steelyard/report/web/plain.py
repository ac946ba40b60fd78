"""Data of a page: JSON without numbers that browsers cannot read and without control characters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from steelyard.report.cells import visible

Document = dict[str, Any]
DIGITS = 6
_LARGEST_WHOLE = 2**53


def plain(value: Any) -> Any:
    """Plain JSON: six significant digits, null for infinite and undefined numbers, text without control characters."""
    kind = type(value)
    if kind is str:
        return visible(value)
    if kind is float:
        return rounded(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    if kind is dict or isinstance(value, Mapping):
        return {visible(str(key)): plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    return rounded(float(value)) if isinstance(value, float) else visible(str(value))


def rounded(value: float) -> float | int | None:
    """A number as short as six digits allow."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < _LARGEST_WHOLE else short


def short(value: Any, longest: int) -> str | int | float | bool | None:
    """A scalar as it is, anything else as text; None if the text is too long to show."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return rounded(value)
    words = ", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)
    return words if len(words) <= longest else None
