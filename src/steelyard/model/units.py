"""Converts quantities between text as people read and type it, and SI values, which all other code uses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from steelyard.errors import UsageError

MOST_COUNT = 2**63 - 1
MOST_DIGITS = 1e15
LONGEST_TIME = 1e9
"""The longest time in seconds that is accepted; a file with more than thirty years is damaged."""
_TIME = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_DECIMAL = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_SMALL = (("m", 1e-3), ("µ", 1e-6), ("n", 1e-9))
_BYTE_SIZES = {"": 1, "B": 1}
for _place, _letter in enumerate("KMGT", 1):
    _BYTE_SIZES |= {_letter: 2 ** (10 * _place), f"{_letter}IB": 2 ** (10 * _place), f"{_letter}B": 10 ** (3 * _place)}
WIDE, LOPSIDED = 0.25, 3.0
COUNTED = ("tok/s",)
"""Units that are written without a prefix."""
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ%]*)\s*")


def scale(value: float, unit: str) -> tuple[float, str]:
    """The factor and name of the prefix that puts a value between 1 and 1000."""
    size = abs(value)
    if not math.isfinite(size):
        return 1.0, unit
    if unit == "s":
        return next(((factor, name) for name, factor in _TIME if size >= factor), (1e-9, "ns"))
    if unit == "B":
        return next(((float(factor), name) for name, factor in _BINARY if size >= factor), (1.0, "B"))
    if unit in ("", "1"):
        return 1.0, ""
    if unit in COUNTED:
        return 1.0, unit
    if unit in ("J", "W") and 0 < size < 1:
        return next(((factor, name + unit) for name, factor in _SMALL if size >= factor), (1e-9, f"n{unit}"))
    factor, prefix = next(((factor, name) for name, factor in _DECIMAL if size >= factor), (1.0, ""))
    return factor, prefix + unit


def digits_after_point(error: float) -> int:
    """Decimals that an uncertainty allows: one significant digit of it, two if it begins with 1 or 2."""
    if not error > 0 or not math.isfinite(error):
        return 2
    exponent = math.floor(math.log10(error))
    leading = error / 10**exponent
    return max(0, -exponent + (1 if leading < 2.95 else 0))


def grouped(value: float, decimals: int) -> str:
    """Digits in groups of three by a thin space, the way the tables write them; very large numbers get an exponent."""
    if abs(value) >= MOST_DIGITS:
        return f"{value:.2e}"
    return f"{value:,.{decimals}f}".replace(",", "\u202f")


def plain(value: float, unit: str, significant: int = 3) -> str:
    """A quantity without an uncertainty: `1.46 TB/s`, `31.0 ms`."""
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    factor, name = scale(value, unit)
    shown = value / factor
    whole = len(str(int(abs(shown))))
    return f"{grouped(shown, max(0, significant - whole))} {name}".strip()


def measured(value: float, low: float | None, high: float | None, unit: str) -> tuple[str, str, str]:
    """Value, half-width and unit as three aligned strings, with no more digits than the interval allows.

    An interval for which ± would be misleading is written as a range: `0.7 to 5.8 ms`; a time indistinguishable from zero as an upper
    bound: `< 8 ns`.
    """
    if low is None or high is None or not math.isfinite(value):
        number, _, name = plain(value, unit).partition(" ")
        return number, "", name
    if unit == "s" and value <= 0 < high:
        number, _, name = plain(high, unit, 2).partition(" ")
        return f"< {number}", "", name
    factor, name = scale(value, unit)
    if unit not in ("", "1") and _is_lopsided(value, low, high):
        decimals = min(digits_after_point(min(low or high, (high - low) / 5) / factor), 4)
        return f"{grouped(low / factor, decimals)} to {grouped(high / factor, decimals)}", "", name
    half = max(high - value, value - low, 0.0) / factor
    decimals = min(digits_after_point(half), 4) if half else 2
    return grouped(value / factor, decimals), grouped(half, decimals), name


def _is_lopsided(value: float, low: float, high: float) -> bool:
    """Whether an interval is wider than the value, or so asymmetric that its half-width is wrong for one side."""
    above, below = high - value, value - low
    if not 0 <= low <= value <= high < math.inf or value == 0:
        return False
    return max(above, below) >= value or (max(above, below) > WIDE * value and max(above, below) > LOPSIDED * min(above, below))


def with_error(value: float, low: float | None, high: float | None, unit: str) -> str:
    """`11.42 ± 0.06 µs` in one string."""
    number, half, name = measured(value, low, high, unit)
    return f"{number} ± {half} {name}".strip() if half else f"{number} {name}".strip()


def percent(share: float) -> str:
    """A share as a percentage: `0.4 %`, `31 %`."""
    points = share * 100
    return f"{points:.0f} %" if points >= 9.95 or points == 0 else f"{points:.1f} %" if points >= 0.095 else "<0.1 %"


def number_of(count: int, noun: str) -> str:
    """A count with its noun: `1 case`, `2 cases`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A rough length of time: `12 s`, `3 min`, `2 h 5 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def is_amount(value: object) -> bool:
    """Whether a value can be an amount or a limit: a finite number of at least 0.

    NaN and infinity are not: as a bound they would let everything pass.
    """
    try:
        return not isinstance(value, (bool, str)) and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]
    except (TypeError, ValueError, OverflowError):
        return False


def check_tolerance(value: object, name: str) -> None:
    """Refuse a tolerance under which any answer would be right."""
    if not is_amount(value):
        raise UsageError(
            f"{name} is {str(value)[:60]}, not a tolerance", why="such a tolerance would accept any answer",
            do="give a finite number of at least 0; --no-verify switches verification off",
        )  # fmt: skip


def parse_budget(value: str | float, presets: Mapping[str, float]) -> float:
    """Seconds from a preset's name, a time such as `30s`, or a number of seconds."""
    if isinstance(value, str) and value in presets:
        return presets[value]
    seconds = parse_seconds(value) if isinstance(value, str) else float(value)
    if not seconds > 0:
        raise UsageError(f"a budget must be more than 0, not {value!r}", do=f"give {', '.join(presets)}, or a time such as 30s")
    return seconds


def parse_bytes(text: str) -> int:
    """Bytes from a size such as `8GiB`, `500MB` or `1024`."""
    number, unit = _split(text, "a size such as 8GiB or 500MB")
    if unit.upper() not in _BYTE_SIZES:
        raise UsageError(f"not a size: {text!r}", do="write it like 8GiB, 500MB or 1048576")
    size = number * _BYTE_SIZES[unit.upper()]
    if not size < 2**63:
        raise UsageError(f"a size of {text!r} is more than any machine has")
    return int(size)


def parse_count(text: str, least: int = 1) -> int | None:
    """A whole number as typed; None if it is not one, or does not fit 64 bits."""
    if not re.fullmatch(r"[0-9]{1,19}", text):
        return None
    return number if least <= (number := int(text)) <= MOST_COUNT else None


def parse_seconds(text: str) -> float:
    """Seconds from a time such as `30s`, `200ms`, `5min` or `2`."""
    number, unit = _split(text, "a time such as 30s or 200ms")
    if unit not in _SECONDS:
        raise UsageError(f"not a time: {text!r}", do="write it like 30s, 200ms, 5min or 2h")
    return number * _SECONDS[unit]


def parse_share(text: str) -> float:
    """A share from `1%` or `0.01`."""
    number, unit = _split(text, "a share such as 1% or 0.01")
    if unit not in ("%", ""):
        raise UsageError(f"not a share: {text!r}", do="write it like 1% or 0.01")
    share = number / 100 if unit == "%" else number
    if not 0 < share < 1:
        raise UsageError(f"a share must be between 0 and 100 %, not {text!r}")
    return share


def _split(text: str, expected: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise UsageError(f"not {expected}: {text!r}")
    if not math.isfinite(float(found[1])):
        raise UsageError(f"not {expected}: {text!r}", why="the number is too large")
    return float(found[1]), found[2]
