"""HUD's rules on runs: two sides for the gate, and series over days, from whatever a run is read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from steelyard.analyze import hud
from steelyard.analyze.provenance import commit_in
from steelyard.codec.hud import HudPolicy, HudWindows, RatioRule, WindowRule
from steelyard.codec.policy import Policy
from steelyard.errors import UsageError, unknown
from steelyard.model.record import BAD, Record
from steelyard.store.runs import Run, moment

if TYPE_CHECKING:
    from steelyard.analyze.gate import Judged

LEAST_MARGIN, MOST_MARGIN = 0.001, 0.99
MOST_NAMED = 4
ASIDE = ("overhead", "discarded", "time_q10", "build_time", "first_call_time")
"""Figures of our own runs that tell how something was measured, not how fast it is."""


def metric_names(metric: str, record: Record | None) -> Iterator[str]:
    """What a figure is called: by us, and by the file that it was read from."""
    yield metric
    told = record.effective.get("metric_names") if record else None
    if isinstance(told, dict) and isinstance(named := told.get(metric), str):
        yield named
    elif metric == "time":
        yield from ("latency", "time (ms)")


def rule_of(rules: Sequence[hud.Rule], metric: str, record: Record | None) -> hud.Rule | None:
    """The rule for a figure; one about the measuring itself has to be named, and is in no pattern."""
    named = [rule for rule in rules if metric not in ASIDE or not set("*?") & set(rule.pattern)]
    return hud.rule_for(named, metric_names(metric, record))


def with_figures(policy: Policy, runs: Sequence[Run]) -> tuple[Policy, list[str]]:
    """A policy that compares every figure that a ratio rule means, and what a reader must know of rules that mean none."""
    if policy.hud is None:
        return policy, []
    notes = ["[hud.window] is about days, not about two sides: steelyard as v3 policy applies it"] if policy.hud.windows else []
    if not policy.hud.ratios:
        return policy, notes
    margins, used = dict(policy.margins), set[str]()
    for record in (record for run in runs for record in run.records):
        for metric, figure in record.metrics.items():
            rule = rule_of(policy.hud.ratios, metric, record)
            if rule and (figure.better != "none" or rule.way):
                used.add(rule.pattern)
                margins[metric] = _margin(rule, figure.better, policy.where)
    idle = [rule.pattern for rule in policy.hud.ratios if rule.pattern not in used]
    if policy.hud.ratios and not used:
        known = {metric for run in runs for record in run.records for metric in record.metrics}
        raise unknown("figure of these runs", idle[0], known, where=f"{policy.where}  hud.ratio" if policy.where else "")
    notes += [f'hud.ratio."{pattern}" in the policy fits no figure that another rule does not' for pattern in idle[:MOST_NAMED]]
    return replace(policy, margins=margins), notes


def _margin(rule: RatioRule, better: str, where: str) -> float:
    """How far a ratio may go before it is bad, as a share."""
    try:
        _, bad, _ = hud.thresholds(rule, better)
    except UsageError as error:
        raise UsageError(error.what, why=error.why, do=error.do, where=where) from None
    return min(MOST_MARGIN, max(LEAST_MARGIN, abs(bad - 1)))


def rules_time(policy: Policy, records: Iterable[Record]) -> bool:
    """Whether a ratio rule decides about time, so that margins do not."""
    found = policy.hud.ratios if policy.hud else ()
    return bool(found) and any(rule_of(found, "time", record) for record in records)


def recast(finding: Judged, policy: HudPolicy, before: Mapping[str, Record], after: Mapping[str, Record]) -> Judged:
    """A finding as HUD's rules see it, which look at no interval; one that no rule is about stays as it is."""
    old, new = before.get(finding.base), after.get(finding.case)
    if finding.ratio is None:
        return _by_status(finding, old, new) if policy.status and finding.kind in ("failed", "new pass") else finding
    rule = rule_of(policy.ratios, finding.metric, new)
    better = finding.now.better if finding.now else finding.was.better if finding.was else "lower"
    if rule is None or finding.kind == "new pass" or (better == "none" and not rule.way):
        return finding
    cell = hud.ratio_cell(rule, 1.0, finding.ratio, better)
    ends = f", 99 % interval [{finding.low:.3g}, {finding.high:.3g}]" if finding.low is not None and finding.high is not None else ""
    told = replace(finding, low=None, high=None, reason=f"HUD's ratio rule: {cell.reason}{ends}")
    if cell.label == "regression":
        return replace(told, kind="regression", verdict="slower")
    return replace(told, kind="improvement", verdict="faster") if cell.label == "good" else replace(told, kind="same", verdict="same")


def _by_status(finding: Judged, old: Record | None, new: Record | None) -> Judged:
    cell = hud.status_cell(*(_passes(record) for record in (old, new)))
    if cell.label != "regression":
        return finding
    return replace(finding, kind="regression", reason=f"HUD's status rule: {cell.reason}; {finding.reason}")


def _passes(record: Record | None) -> bool | None:
    return None if record is None else True if record.status == "ok" else False if record.status in BAD else None


@dataclass(frozen=True)
class SeriesReport:
    """One case and metric over two windows, on one machine and branch."""

    case: str
    metric: str
    machine: str
    branch: str
    unit: str
    rule: WindowRule
    verdict: hud.SeriesVerdict


@dataclass(frozen=True)
class WindowReport:
    """What the windowed rules say of all series; `end` is where the newer window ends, `skipped` are metrics that no rule is about."""

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
    """Every series in some runs under the rules; without an `end` the windows end at the newest run."""
    moments = [found for run in runs if (found := moment(run.header.created))]
    if not moments:
        raise UsageError("no run says when it was made", why="windows are windows of days", do="merge a timestamp into the records")
    upto = max(moments) if end is None else end
    series: dict[tuple[str, str, str, str], list[hud.SeriesPoint]] = {}
    about: dict[tuple[str, str, str, str], tuple[WindowRule, str, str]] = {}
    skipped: dict[str, None] = {}
    for run in sorted(runs, key=lambda run: moment(run.header.created)):
        when, (commit, _) = moment(run.header.created), commit_in(run.header.machine)
        branch = str((run.header.machine.get("git") or {}).get("branch") or "")
        for record in run.records if when else ():
            for metric, figure in record.metrics.items() if record.status == "ok" else ():
                rule = rule_of(windows.rules, metric, record)
                if rule is None:
                    skipped[metric] = None
                    continue
                key = (record.id, metric, run.header.machine_key, branch)
                about[key] = (rule, figure.unit, figure.better)
                series.setdefault(key, []).append(hud.SeriesPoint(when, figure.value, run.id, commit))
    made = [
        SeriesReport(*key, unit, rule, hud.judge_series(series[key], windows, rule, upto, better))
        for key, (rule, unit, better) in about.items()
    ]
    if not made:
        known = sorted(skipped)
        raise unknown("metric in these runs", windows.rules[0].pattern, known)
    made.sort(key=lambda item: -hud.SEVERITIES.index(item.verdict.label))
    inside = [found for found in moments if found <= upto]
    return WindowReport(
        hud.report_status([item.verdict.label for item in made]), upto, max(inside, default=0.0), windows, made, list(skipped)
    )
