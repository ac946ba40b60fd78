"""HUD's rules for what is a regression, with its labels: for two values, for two statuses, and for a series over two windows of days.

They ignore the spread of values, so on a noisy machine they report changes that are noise; the gate's own margins do not. One
mistake in HUD is corrected: the direction is the metric's own, so that a faster time is never marked red.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median
from typing import Literal, TypeVar, get_args

from steelyard.analyze.foreign.metric_names import spelled
from steelyard.codec.hud import BAD_SIDE, Aggregate, HudWindows, RatioRule, Way, WindowRule
from steelyard.errors import UsageError

Rule = TypeVar("Rule", RatioRule, WindowRule)
CellLabel = Literal["regression", "good", "neutral", "warning", "missing"]
SeriesLabel = Literal["insufficient_data", "regression", "suspicious", "no_regression"]
Severity = Literal["unknown", "none", "no_regression", "insufficient_data", "suspicious", "regression"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Labels, from the least bad to the worst."""
USUAL: Mapping[Way, tuple[float, float]] = {"up": (0.9, 1.1), "down": (1.15, 0.85)}
"""HUD's ratios for bad and good if a policy has none, by the direction that is better."""
WAYS: Mapping[str, Way] = {"higher": "up", "lower": "down", "none": ""}
FEWEST_POINTS = 2
TRAILING = 2
ELSEWHERE = 3
MOSTLY = 0.9
"""If at least this share of series has too little data, a report says only that."""
DAY = 86400.0


@dataclass(frozen=True)
class HudCell:
    """HUD's label for a change from one value to another, and why.

    `name` is the metric's name in its file, `direction` the one that is better; `old` and `new` are in `unit`, which is the file's own.
    For a rule about statuses `old` and `new` are the statuses.
    """

    label: CellLabel
    reason: str = ""
    name: str = ""
    direction: Way = ""
    old: float | str | None = None
    new: float | str | None = None
    unit: str = ""


@dataclass(frozen=True)
class SeriesPoint:
    """One value of a series, with its time, run and commit; `flagged` if it violates the rule."""

    moment: float
    value: float
    run: str = ""
    commit: str = ""
    flagged: bool = False


@dataclass(frozen=True)
class SeriesVerdict:
    """The result of a rule for a series: its label, the value of the baseline window, and the points of the comparison window."""

    label: SeriesLabel
    baseline: float | None = None
    points: tuple[SeriesPoint, ...] = field(default=())
    reason: str = ""


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern matches a metric; case, unit and spelling do not matter, and a benchmark's main time is `time`."""
    wanted = pattern.lower().strip()
    plain = pattern if "*" in pattern or "?" in pattern else spelled(pattern)
    return fnmatchcase(name.lower(), wanted) or fnmatchcase(spelled(name), plain.lower())


def rule_for(rules: Sequence[Rule], names: Iterable[str]) -> Rule | None:
    """The last rule that fits one of a metric's names."""
    known = list(names)
    return next((rule for rule in reversed(rules) if any(fits(rule.pattern, name) for name in known)), None)


def thresholds(rule: RatioRule, better: str) -> tuple[Way, float, float]:
    """The direction that is better, and the ratios beyond which a change is bad and good; a rule that calls the better side bad fails."""
    own = WAYS.get(better, "")
    if rule.way and own and rule.way != own:
        what = f'hud.ratio."{rule.pattern}" calls a change for the better bad'
        raise UsageError(what, why=f"for this figure {'less' if own == 'down' else 'more'} is better", do=BAD_SIDE)
    way: Way = rule.way or own or "up"
    bad, good = USUAL[way]
    return way, rule.bad if rule.bad is not None else bad, rule.good if rule.good is not None else good


def ratio_cell(rule: RatioRule, old: float | None, new: float | None, better: str = "none", *, failed: bool = False) -> HudCell:
    """Label two values by a ratio rule; a ratio equal to the threshold is neither bad nor good, and a failed case has no ratio."""
    if failed:
        return HudCell("warning", "it failed, so there is no value to compare")
    if old is None or new is None:
        return HudCell("neutral" if old is None and new is None else "missing", f"{_lacking(old, new)} no value")
    way, bad, good = thresholds(rule, better)
    if not rule.way and better == "none":
        return HudCell("neutral", "it is unknown which direction is better")
    if old < 0 or not (math.isfinite(old) and math.isfinite(new)):
        return HudCell("neutral", "a ratio to a negative or infinite value has no meaning")
    worse, fine = (new > old * bad, new < old * good) if way == "down" else (new < old * bad, new > old * good)
    side, other = ("above", "below") if way == "down" else ("below", "above")
    share = f"{new / old:.3g} of base" if old else "base is 0"
    if worse:
        return HudCell("regression", f"{share}, and {side} {bad:g} is bad")
    return (
        HudCell("good", f"{share}, and {other} {good:g} is good")
        if fine
        else HudCell("neutral", f"{share}, and {side} {bad:g} would be bad")
    )


def _lacking(old: object, new: object) -> str:
    """Words for the side without a value or status."""
    return "neither has" if old is None and new is None else f"{'base' if old is None else 'head'} has"


def passed(status: str) -> bool | None:
    """Whether a status means pass; False if it means fail, None if it means neither."""
    plain = status.lower()
    return True if plain == "ok" or "pass" in plain else False if "fail" in plain else None


def status_cell(old: bool | None, new: bool | None) -> HudCell:
    """Label two statuses: a pass that now fails is a regression, a failure that now passes is good, one that fails again is a warning."""
    if old is None or new is None:
        return HudCell("neutral" if old is None and new is None else "missing", f"{_lacking(old, new)} no status of pass or fail")
    if new:
        return HudCell("neutral" if old else "good", "passes as before" if old else "failed, and passes now")
    return HudCell("regression", "passed, and fails now") if old else HudCell("warning", "fails as before")


def baseline_of(values: Sequence[float], kind: Aggregate) -> float | None:
    """The value of the baseline window to compare others with; `values` are in order of time, and `median` gives the one nearest to it."""
    if not values:
        return None
    if kind == "median":
        centre = median(values)
        return min(values, key=lambda value: abs(value - centre))
    return {"min": min(values), "max": max(values), "earliest": values[0], "target": values[-1]}[kind]


def violates(rule: WindowRule, value: float, baseline: float) -> bool:
    """Whether a value violates the rule; the strict conditions also flag a value equal to the limit.

    The tolerance of `equal_to` is a share of the limit, or of 1 if the limit is smaller, as in HUD. So the unit matters:
    values must be in the unit of the file or of the rule.
    """
    limit = baseline * rule.threshold
    if rule.condition == "equal_to":
        return abs(value - limit) > rule.rel_tol * max(1.0, abs(limit))
    return {
        "greater_equal": value < limit, "greater_than": value <= limit, "less_equal": value > limit, "less_than": value >= limit,
    }[rule.condition]  # fmt: skip


def label_of(flags: Sequence[bool]) -> SeriesLabel:
    """The label of a series by its violating points: enough in a row at its end, enough in a row elsewhere, or too few."""
    if len(flags) < FEWEST_POINTS:
        return "insufficient_data"
    runs = [0]
    for flag in flags:
        if flag:
            runs[-1] += 1
        else:
            runs.append(0)
    return "regression" if runs[-1] >= TRAILING else "suspicious" if max(runs) >= ELSEWHERE else "no_regression"


def judge_series(
    points: Sequence[SeriesPoint], windows: HudWindows, rule: WindowRule, end: float, better: str = "none", factor: float = 1.0
) -> SeriesVerdict:
    """Judge a series by a rule, with windows that end at `end`.

    `factor` is the rule's unit in the points' unit: values are compared in the rule's unit, in which a tolerance has its smallest size.
    """
    _check_side(rule, better)
    ordered = sorted(points, key=lambda point: point.moment)
    middle = end - windows.comparison_days * DAY
    start = middle - windows.baseline_days * DAY
    before = [point.value for point in ordered if start < point.moment <= middle]
    after = [point for point in ordered if middle < point.moment <= end]
    baseline = baseline_of(before, rule.baseline)
    if baseline is None or not after:
        return SeriesVerdict("insufficient_data", reason="the baseline window is empty" if after else "the comparison window is empty")
    judged = tuple(
        SeriesPoint(point.moment, point.value, point.run, point.commit, violates(rule, point.value / factor, baseline / factor))
        for point in after
    )
    label = label_of([point.flagged for point in judged])
    return SeriesVerdict(label, baseline, judged, f"fewer than {FEWEST_POINTS} points" if label == "insufficient_data" else "")


def _check_side(rule: WindowRule, better: str) -> None:
    """Raise an error if a rule calls the better side bad."""
    good = {"greater_equal": "higher", "greater_than": "higher", "less_equal": "lower", "less_than": "lower"}.get(rule.condition)
    if good and better in ("higher", "lower") and better != good:
        raise UsageError(
            f'hud.window.metrics."{rule.pattern}": {rule.condition} calls a change for the better bad',
            why=f"for this figure {better} is better", do=f"use {'less_equal' if better == 'lower' else 'greater_equal'}",
        )  # fmt: skip


def report_status(labels: Sequence[SeriesLabel]) -> Severity:
    """One word for a whole report: the worst label; "mostly no data" takes precedence over "all well"."""
    counted = Counter(labels)
    if not labels:
        return "unknown"
    if counted["regression"]:
        return "regression"
    if counted["suspicious"]:
        return "suspicious"
    return "insufficient_data" if counted["insufficient_data"] >= MOSTLY * len(labels) else "no_regression"
