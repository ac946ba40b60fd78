"""Applies HUD's rules to runs of any origin: to two sides, for the gate, and to series over days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from steelyard.analyze import hud
from steelyard.analyze.foreign import metric_names as metric_words
from steelyard.analyze.provenance import commit_in
from steelyard.analyze.unpaired import UNPOSITIVE
from steelyard.codec.hud import HudPolicy, HudWindows, RatioRule, WindowRule
from steelyard.codec.policy import Policy
from steelyard.errors import UsageError, unknown
from steelyard.model.pair import Verdict
from steelyard.model.record import BAD, Figure, Record
from steelyard.store.runs import Run, moment

if TYPE_CHECKING:
    from steelyard.analyze.gate import Judged, Kind

LEAST_MARGIN, MOST_MARGIN = 0.001, 0.99
MOST_NAMED = 4
ASIDE = ("overhead", "discarded", "time_q10", "build_time", "first_call_time")
"""Metrics of our own runs that describe the measurement, not speed."""


def metric_names(metric: str, record: Record | None) -> Iterator[str]:
    """The names of a metric: ours, and the one in the file it was read from."""
    yield metric
    if named := title_in_file(metric, record):
        yield named
    elif metric == "time":
        yield from ("latency", "time (ms)")


def title_in_file(metric: str, record: Record | None) -> str:
    """A figure's name in the file that it was read from, if it differs from ours; else empty."""
    told = record.effective.get("metric_names") if record else None
    named = told.get(metric) if isinstance(told, dict) else None
    return named if isinstance(named, str) else ""


def unit_in_file(metric: str, figure: Figure, record: Record | None) -> tuple[str, float]:
    """A figure's unit in the file that it was read from, else the unit that dashboards show; with how much of our unit one of it is."""
    told = record.effective.get("metric_units") if record else None
    unit = told.get(metric) if isinstance(told, dict) else None
    known = metric_words.UNITS.get(unit.lower()) if isinstance(unit, str) else None
    return (unit, known[1]) if isinstance(unit, str) and known and known[0] == figure.unit else metric_words.written(metric, figure.unit)


def rule_of(rules: Sequence[hud.Rule], metric: str, record: Record | None) -> hud.Rule | None:
    """The rule for a figure; a metric about the measuring itself must be named exactly; patterns do not match it."""
    named = [rule for rule in rules if metric not in ASIDE or not set("*?") & set(rule.pattern)]
    return hud.rule_for(named, metric_names(metric, record))


def with_figures(policy: Policy, runs: Sequence[Run]) -> tuple[Policy, list[str]]:
    """A policy that compares every metric a ratio rule matches, and notes on rules that match none."""
    if policy.hud is None:
        return policy, []
    notes = ["[hud.window] compares days, not two sides, and is ignored here: steelyard as v3 policy uses it"] if policy.hud.windows else []
    if not policy.hud.ratios:
        return policy, notes
    margins, used, blind = dict(policy.margins), set[str](), dict[str, None]()
    for record in (record for run in runs for record in run.records):
        for metric, figure in record.metrics.items():
            rule = rule_of(policy.hud.ratios, metric, record)
            if rule and (figure.better != "none" or rule.way):
                used.add(rule.pattern)
                margins[metric] = _margin(rule, figure.better, policy.where)
            elif rule:
                used.add(rule.pattern)
                blind[metric] = None
    idle = [rule.pattern for rule in policy.hud.ratios if rule.pattern not in used]
    if not used:
        known = {metric for run in runs for record in run.records for metric in record.metrics}
        raise unknown("figure of these runs", idle[0], known, where=f"{policy.where}  hud.ratio" if policy.where else "")
    notes += [f'hud.ratio."{pattern}" in the policy decides nothing: no figure fits, or a later rule does' for pattern in idle[:MOST_NAMED]]
    if blind:
        named = f"{', '.join(list(blind)[:MOST_NAMED])}{' and others' * (len(blind) > MOST_NAMED)}"
        notes.append(f'it is unknown which direction of {named} is better, so HUD\'s rules were not used; set direction = "up" or "down"')
    return replace(policy, margins=margins), notes


def _margin(rule: RatioRule, better: str, where: str) -> float:
    """How far a ratio may be from 1 before it is bad."""
    try:
        _, bad, _ = hud.thresholds(rule, better)
    except UsageError as error:
        raise UsageError(error.what, why=error.why, do=error.do, where=where) from None
    return min(MOST_MARGIN, max(LEAST_MARGIN, abs(bad - 1)))


def rules_time(policy: Policy, records: Iterable[Record]) -> bool:
    """Whether a ratio rule decides about time, so that margins do not."""
    found = policy.hud.ratios if policy.hud else ()
    return bool(found) and any(rule_of(found, "time", record) for record in records)


KINDS: Mapping[str, tuple[Kind, Verdict]] = {
    "regression": ("regression", "slower"), "good": ("improvement", "faster"), "neutral": ("same", "same"),
}  # fmt: skip
"""The gate's outcome for each label of two values."""


def recast(finding: Judged, policy: HudPolicy, before: Mapping[str, Record], after: Mapping[str, Record]) -> Judged:
    """The finding judged by HUD's rules, which ignore intervals, with its label; unchanged if no rule fits."""
    old, new = before.get(finding.base), after.get(finding.case)
    rule = rule_of(policy.ratios, finding.metric, new or old)
    better = next((figure.better for figure in (finding.now, finding.was) if figure), "lower")
    if finding.kind != "new pass" and rule and (better != "none" or rule.way) and (finding.ratio is not None or _has_zero(finding)):
        return _by_ratio(finding, rule, better, old, new)
    passes = [_passes(record) for record in (old, new)]
    if policy.status and (finding.ratio is not None or passes != [True, True]):
        return _by_status(finding, hud.status_cell(*passes), old, new)
    if rule and finding.kind in ("failed", "missing", "new pass") and (finding.kind == "missing" or passes != [True, True]):
        cell = hud.ratio_cell(rule, *_values(finding), better, failed=passes[1] is False)
        return replace(finding, hud=_filled(cell, finding, rule, better, old, new))
    return finding


def _values(finding: Judged) -> tuple[float | None, float | None]:
    return finding.was.value if finding.was else None, finding.now.value if finding.now else None


def _has_zero(finding: Judged) -> bool:
    """Whether there are two values but no ratio, because one is 0 or less; HUD still has a label for them."""
    return finding.ratio is None and finding.reason.endswith(UNPOSITIVE) and None not in _values(finding)


def _by_ratio(finding: Judged, rule: RatioRule, better: str, old: Record | None, new: Record | None) -> Judged:
    values = (1.0, finding.ratio) if finding.ratio is not None else _values(finding)
    cell = hud.ratio_cell(rule, *values, better)
    kind, verdict = KINDS[cell.label]
    ends = f", 99 % interval [{finding.low:.3g}, {finding.high:.3g}]" if finding.low is not None and finding.high is not None else ""
    told = replace(finding, kind=kind, verdict=verdict, low=None, high=None, reason=f"HUD's ratio rule: {cell.reason}{ends}")
    return replace(told, hud=_filled(cell, finding, rule, better, old, new))


def _filled(cell: hud.HudCell, finding: Judged, rule: RatioRule, better: str, old: Record | None, new: Record | None) -> hud.HudCell:
    """The cell with the names and values that a table shows, in the unit of the newer file; a failed case has its status as its value."""
    figure = finding.now or finding.was
    unit, factor = unit_in_file(finding.metric, figure, new or old) if figure else ("", 1.0)
    name = title_in_file(finding.metric, new or old) or finding.metric
    shown = [
        value / factor if value is not None else record.status if record and record.status != "ok" else None
        for value, record in zip(_values(finding), (old, new), strict=True)
    ]
    return replace(cell, name=name, direction=hud.thresholds(rule, better)[0], old=shown[0], new=shown[1], unit="" if unit == "1" else unit)


def _by_status(finding: Judged, cell: hud.HudCell, old: Record | None, new: Record | None) -> Judged:
    """The finding judged by the status rule; unless that is a regression, the finding's outcome stays."""
    statuses = [record.status if record else None for record in (old, new)]
    told = replace(finding, hud=replace(cell, name="status", old=statuses[0], new=statuses[1]))
    if cell.label != "regression":
        return told
    return replace(told, kind="regression", reason=f"HUD's status rule: {cell.reason}; {finding.reason}")


def _passes(record: Record | None) -> bool | None:
    return None if record is None else True if record.status == "ok" else False if record.status in BAD else None


@dataclass(frozen=True)
class SeriesReport:
    """One case and metric over two windows, on one machine and branch; `name` is the metric's name in its file."""

    case: str
    metric: str
    machine: str
    branch: str
    name: str
    unit: str
    better: str
    rule: WindowRule
    verdict: hud.SeriesVerdict


@dataclass(frozen=True)
class WindowReport:
    """The results of the windowed rules for all series; `end` is where the newer window ends, `skipped` are metrics without a rule."""

    status: hud.Severity
    end: float
    newest: float
    windows: HudWindows
    series: list[SeriesReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def stale(self) -> bool:
        """Whether the newest value is too old to report on."""
        return self.newest < self.end - self.windows.stale_days * hud.DAY


def report(runs: Sequence[Run], windows: HudWindows, end: float | None) -> WindowReport:
    """Judge every series in these runs by the rules; without an `end` the windows end at the newest run."""
    moments = [found for run in runs if (found := moment(run.header.created))]
    if not moments:
        raise UsageError("no run says when it was made", why="the rules compare windows of days", do="merge a timestamp into the records")
    upto = max(moments) if end is None else end
    series: dict[tuple[str, str, str, str], list[hud.SeriesPoint]] = {}
    newest: dict[tuple[str, str, str, str], tuple[WindowRule, Record]] = {}
    skipped: dict[str, None] = {}
    for run in sorted(runs, key=lambda run: moment(run.header.created)):
        when, (commit, _) = moment(run.header.created), commit_in(run.header.machine)
        branch = str((run.header.machine.get("git") or {}).get("branch") or "")
        for record in run.records if when else ():
            for metric, figure in record.metrics.items() if record.status == "ok" else ():
                rule = rule_of(windows.rules, metric, record)
                if rule is None:
                    skipped[title_in_file(metric, record) or metric] = None
                    continue
                key = (record.id, metric, run.header.machine_key, branch)
                newest[key] = (rule, record)
                series.setdefault(key, []).append(hud.SeriesPoint(when, figure.value, run.id, commit))
    made = []
    for key, (rule, record) in newest.items():
        metric, figure = key[1], record.metrics[key[1]]
        verdict = hud.judge_series(series[key], windows, rule, upto, figure.better, _factor(rule, metric, figure, record))
        made.append(SeriesReport(*key, title_in_file(metric, record) or metric, figure.unit, figure.better, rule, verdict))
    if not made:
        known = sorted(skipped)
        raise unknown("metric in these runs", windows.rules[0].pattern, known)
    made.sort(key=lambda item: -hud.SEVERITIES.index(item.verdict.label))
    inside = [found for found in moments if found <= upto]
    return WindowReport(
        hud.report_status([item.verdict.label for item in made]), upto, max(inside, default=0.0), windows, made, list(skipped)
    )


def _factor(rule: WindowRule, metric: str, figure: Figure, record: Record) -> float:
    """How much of our unit one unit of the rule is; that is the unit in the rule's pattern, else the file's."""
    named = metric_words.UNITS.get(metric_words.split(rule.pattern)[1].strip().lower())
    return named[1] if named and named[0] == figure.unit else unit_in_file(metric, figure, record)[1]
