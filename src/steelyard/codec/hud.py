"""HUD's regression policies in a gate policy: `[hud]` with rules for ratios, for statuses, and over windows of days.

analyze.hud applies them; docs/howto/hud-rules.md explains the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from steelyard.codec.reading import CheckedFile, choice, expect, is_number, shown

Way = Literal["up", "down", ""]
Aggregate = Literal["min", "max", "earliest", "target", "median"]
Condition = Literal["greater_equal", "greater_than", "less_equal", "less_than", "equal_to"]
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
DAYS = 3.0
STALE = 2.0
MOST_DAYS = 3660.0
REL_TOL = 1e-3


@dataclass(frozen=True)
class RatioRule:
    """From which ratio of new over old a change is bad or good, for metrics that fit a pattern.

    `way` is the better direction; if it is empty, each metric's own direction decides, with HUD's thresholds.
    """

    pattern: str
    way: Way = ""
    bad: float | None = None
    good: float | None = None


@dataclass(frozen=True)
class WindowRule:
    """What every value of the comparison window is compared with: a value of the baseline window, times a threshold."""

    pattern: str
    baseline: Aggregate
    condition: Condition
    threshold: float
    rel_tol: float = REL_TOL


@dataclass(frozen=True)
class HudWindows:
    """Lengths in days of the two windows (the newer one last), the age in days from which data is too old to report, and
    the rules by metric."""

    baseline_days: float = DAYS
    comparison_days: float = DAYS
    stale_days: float = STALE
    rules: tuple[WindowRule, ...] = ()


@dataclass(frozen=True)
class HudPolicy:
    """The rules under `[hud]`; if several patterns fit a metric, the last one in the file decides."""

    status: bool = False
    ratios: tuple[RatioRule, ...] = ()
    windows: HudWindows | None = None


def parse_hud(page: CheckedFile, data: Any) -> HudPolicy | None:
    """Check the table and return its policy; mistakes are added to the page."""
    table = page.table(data, "hud")
    page.known(table, "hud", ("status", "ratio", "window"))
    ratios = page.table(table.get("ratio", {}), "hud.ratio")
    made = HudPolicy(
        page.read(table, "hud", "status", _flag, False),
        tuple(_ratio(page, pattern, value) for pattern, value in ratios.items()),
        _windows(page, table["window"]) if "window" in table else None,
    )
    if not made.status and not made.ratios and not (made.windows and made.windows.rules):
        page.wrong("hud", "the table is empty", do="name status, ratio or window", near="[hud")
    return made


def _flag(value: Any) -> bool:
    expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def _factor(value: Any) -> float:
    expect(is_number(value) and 0 < value < 1e6, "a factor of the old value, such as 0.9 or 1.15", value)
    return float(value)


def _days(value: Any) -> float:
    expect(is_number(value) and 0 < value <= MOST_DAYS, f"a number of days, at most {MOST_DAYS:g}", value)
    return float(value)


def _ratio(page: CheckedFile, pattern: str, value: Any) -> RatioRule:
    path, near = f'hud.ratio."{pattern}"', f'"{pattern}"'
    table = page.table(value, path)
    page.known(table, path, ("direction", "bad", "good"))
    bad, good = (page.read(table, path, key, _factor, None) for key in ("bad", "good"))
    told: str = page.read(table, path, "direction", choice(("up", "down")), "")
    ways = {"down" if factor > 1 else "up" for factor in (bad,) if factor is not None and factor != 1}
    ways |= {"up" if factor > 1 else "down" for factor in (good,) if factor is not None and factor != 1}
    ways |= {told} if told else set()
    if len(ways) > 1:
        limits = " and ".join(f"{name} = {factor:g}" for name, factor in (("bad", bad), ("good", good)) if factor is not None)
        page.wrong(path, f"{limits}{f' with direction {told}' if told else ''} contradict each other", do=BAD_SIDE, near=near)
    way: Way = "up" if "up" in ways else "down" if ways else ""
    return RatioRule(pattern, way, bad, good)


BAD_SIDE = "set bad above 1 and good below 1 if less is better; if more is better, bad below 1 and good above 1"


def _windows(page: CheckedFile, data: Any) -> HudWindows:
    path = "hud.window"
    table = page.table(data, path)
    page.known(table, path, ("baseline_days", "comparison_days", "stale_days", "metrics"))
    days = {
        key: page.read(table, path, key, _days, usual)
        for key, usual in (("baseline_days", DAYS), ("comparison_days", DAYS), ("stale_days", STALE))
    }
    rules = page.table(table.get("metrics", {}), f"{path}.metrics")
    if not rules:
        page.wrong(f"{path}.metrics", "no metric has a rule", do='add one: [hud.window.metrics."time (ms)"]', near="[hud.window]")
    return HudWindows(**days, rules=tuple(_window_rule(page, pattern, value) for pattern, value in rules.items()))


def _window_rule(page: CheckedFile, pattern: str, value: Any) -> WindowRule:
    path = f'hud.window.metrics."{pattern}"'
    table: Mapping[str, Any] = page.table(value, path)
    page.known(table, path, ("baseline", "condition", "threshold", "rel_tol"))
    for key in ("baseline", "condition", "threshold"):
        if isinstance(value, dict) and key not in table:
            page.wrong(f"{path}.{key}", f"is missing in {shown(value)}", near=f'"{pattern}"')
    return WindowRule(
        pattern,
        page.read(table, path, "baseline", choice(AGGREGATES), "median"),
        page.read(table, path, "condition", choice(CONDITIONS), "less_equal"),
        page.read(table, path, "threshold", _factor, 1.0),
        page.read(table, path, "rel_tol", _factor, REL_TOL),
    )
