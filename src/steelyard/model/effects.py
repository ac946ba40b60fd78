"""Effects in words: how much more or less time one arm takes than another, written the same way everywhere.

An effect compares time, head against base: `4.0 % slower [3.1, 4.9]`, `3.1 % faster [2.2, 4.0]`, from a factor of 1.5
`2.30x faster [2.21, 2.39]`. The brackets are the interval in the unit of the number before them; if there is no such
number (`within 2 % [-0.4, 0.9]`, `unclear [-1.1, 3.0]`) they are percent of time, and less time is negative.
report/web/assets/js/01-format.js has the same rules for effects that a page computes itself; a test checks that both agree.
"""

from __future__ import annotations

import math

from steelyard.model.parts import is_time
from steelyard.model.units import digits_after_point

UNBOUNDED = 1e6
FACTOR_FROM = 1.5
MOST_DIGITS = 3
NOT_CONFIRMED = "not confirmed"
COMPARABLE = ("slower", "faster", "same", "unclear")
"""Verdicts with a size and an interval; the other verdicts have neither, whatever was measured."""
_VERDICTS = {"incomparable": "not comparable"}


def bounded(*ratios: float | None) -> bool:
    """Whether all known ratios are within the limits of a comparison; an interval beyond UNBOUNDED counts as no interval."""
    return all(1 / UNBOUNDED < ratio < UNBOUNDED for ratio in ratios if ratio is not None)


def within(low: float | None, high: float | None, margin: float) -> bool:
    """Whether an interval lies inside the margin: head and base count as the same."""
    return low is not None and high is not None and low >= 1 / (1 + margin) and high <= 1 + margin


def beyond(low: float | None, high: float | None, margin: float) -> bool:
    """Whether an interval lies wholly beyond the margin, on either side."""
    return low is not None and high is not None and (low > 1 + margin or high < 1 / (1 + margin))


def effect(
    ratio: float | None,
    low: float | None,
    high: float | None,
    verdict: str,
    *,
    margin: float,
    metric: str = "time",
    paired: bool = True,
) -> str:
    """One comparison in words: verdict, size, interval, and whether it still has to be confirmed."""
    if ratio is None or verdict not in COMPARABLE:
        return _VERDICTS.get(verdict, verdict)
    if not bounded(ratio, low, high):
        return f"{verdict}, interval unbounded"
    if verdict == "same":
        return f"within {margin_text(margin)}{_signed_ends(low, high)}"
    if verdict == "unclear":
        return f"unclear{_signed_ends(low, high)}"
    loose = "" if paired else f", {NOT_CONFIRMED}"
    return f"{change(ratio, low, high, margin=margin, metric=metric)}{loose}"


def change(ratio: float, low: float | None = None, high: float | None = None, *, margin: float | None = None, metric: str = "time") -> str:
    """The size of a change and its interval: `4.0 % slower [3.1, 4.9]`; with a margin, `slower, size unclear [1.7, 5.6]`.

    An interval that includes a ratio of 1 has no direction, whatever its centre.
    """
    if not bounded(ratio, low, high):
        return "unbounded"
    word = _words(metric)[ratio < 1]
    ends = [_size(end, ratio) for end in ((high, low) if ratio < 1 else (low, high)) if end is not None]
    if len(ends) < 2:
        alone = _alone(ratio)
        return f"{alone} {word}" if alone.strip("0. %") else "no change"
    if low is not None and high is not None and low < 1 < high:
        return f"unclear{_signed_ends(low, high)}"
    decimals = _decimals(ends[1] - ends[0])
    span = f"[{_number(ends[0], decimals)}, {_number(ends[1], decimals)}]"
    if margin is not None and not beyond(low, high, margin):
        return f"{word}, size unclear {span}"
    return f"{_number(_size(ratio, ratio), decimals)}{_unit(ratio)} {word} {span}"


def speedup(value: float, low: float | None = None, high: float | None = None) -> str:
    """A speedup (base time over head time) in words, as a change of time."""
    if not bounded(value, low, high):
        return "unbounded"
    return change(1 / value, 1 / high if low and high else None, 1 / low if low and high else None)


def margin_text(margin: float) -> str:
    """`2 %`, `0.5 %`."""
    return f"{100 * margin:.3g} %"


def _words(metric: str) -> tuple[str, str]:
    return ("slower", "faster") if is_time(metric) else ("more", "less")


def _by_factor(ratio: float) -> bool:
    return max(ratio, 1 / ratio) >= FACTOR_FROM


def _unit(ratio: float) -> str:
    return "x" if _by_factor(ratio) else " %"


def _size(end: float, ratio: float) -> float:
    """An end of the interval in the unit of the ratio's own size, positive where it has the ratio's direction."""
    if _by_factor(ratio):
        return end if ratio > 1 else 1 / end
    return 100 * (end - 1) if ratio >= 1 else 100 * (1 - end)


def _alone(ratio: float) -> str:
    """A size without an interval, with at most three digits."""
    size = _size(ratio, ratio)
    decimals = max(0, 3 - len(f"{size:.0f}")) if _by_factor(ratio) else int(size < 9.95)
    return f"{_number(size, decimals)}{_unit(ratio)}"


def _signed_ends(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    decimals = _decimals(100 * (high - low))
    return f" [{_number(100 * (low - 1), decimals)}, {_number(100 * (high - 1), decimals)}]"


def _decimals(width: float) -> int:
    return min(MOST_DIGITS, digits_after_point(width / 2)) if math.isfinite(width) else 0


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text if text.strip("-0.") else text.lstrip("-")
