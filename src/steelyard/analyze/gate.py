"""Whether a change may pass: a comparison judged by a policy, with an exit code and the findings behind it.

A regression is a change wholly beyond its margin, on the bad side, that was measured interleaved. A change that is not settled
(the interval holds an edge of the margin) or not confirmed (the runs were made apart) is listed with its numbers, and does not
count as within the margin. If nothing could be compared or nothing was decided, the gate does not pass.
docs/howto/gate.md has the whole table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from steelyard.analyze.compare import Comparison, Confirm, Mean, RunsSide, check_metrics, compare, mean_ratios, replaced, suspicious
from steelyard.analyze.conditions import Conditions
from steelyard.analyze.hud import HudCell
from steelyard.analyze.hud_gate import recast, rules_time, with_figures
from steelyard.analyze.repeat import repeat_lines
from steelyard.analyze.suite import Suite, narrowed, retold
from steelyard.analyze.unpaired import STEADY_UNITS, Both, held, status_words
from steelyard.codec.policy import Excuse, Policy
from steelyard.errors import FAILED, INCONCLUSIVE, NOTHING, PASS, REGRESSION, exit_code
from steelyard.model import effects
from steelyard.model.pair import Delta, Verdict
from steelyard.model.record import BAD, Figure, Record
from steelyard.model.units import number_of

Kind = Literal[
    "regression", "failed", "missing", "not confirmed", "slower", "unclear", "incomparable", "new pass", "improvement", "faster", "same"
]  # fmt: skip
Outcome = Literal["pass", "regression", "failed", "nothing comparable", "inconclusive"]
Records = Mapping[str, Record]

SCHEMA = 2
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTCOMES: Mapping[int, Outcome] = {
    PASS: "pass",
    REGRESSION: "regression",
    FAILED: "failed",
    NOTHING: "nothing comparable",
    INCONCLUSIVE: "inconclusive",
}
_COUNTED: Mapping[Kind, tuple[int, str]] = {
    "regression": (REGRESSION, "slower beyond the margin"),
    "failed": (FAILED, "failed"),
    "missing": (FAILED, "missing"),
    "not confirmed": (INCONCLUSIVE, "slower, not confirmed"),
    "slower": (INCONCLUSIVE, "slower, size unclear"),
    "unclear": (INCONCLUSIVE, "unclear"),
    "incomparable": (INCONCLUSIVE, "not comparable"),
}
CODES: Mapping[Kind, int] = {kind: code for kind, (code, _) in _COUNTED.items()}
WORDS: Mapping[Kind, str] = {kind: words for kind, (_, words) in _COUNTED.items()}
OPEN: tuple[Kind, ...] = ("not confirmed", "slower", "unclear")
"""Outcomes of comparisons that could still be regressions."""
MOST_HIDDEN = 20
"""At most this many cases, the noisiest, are measured again only because they were too noisy to decide; each takes time."""


@dataclass(frozen=True)
class Judged:
    """The gate's finding on one case and metric; `counts` is whether it affects the verdict, `excuse` why it does not.

    `ratio` is head over base with its interval, `was` and `now` are the figures themselves, `repeat` is the command that measures
    the case again. `hud` is the label from one of HUD's rules.
    """

    kind: Kind
    case: str
    base: str
    metric: str = "time"
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    paired: bool = False
    reason: str = ""
    excuse: str = ""
    counts: bool = False
    was: Figure | None = None
    now: Figure | None = None
    repeat: str = ""
    verdict: Verdict = "unclear"
    hud: HudCell | None = None

    @property
    def compared(self) -> bool:
        """Whether two values were compared: by their ratio, or by one of HUD's rules if one of them is 0."""
        values = (self.hud.old, self.hud.new) if self.hud else ()
        return self.ratio is not None or (bool(values) and all(isinstance(value, float) for value in values))

    @property
    def ruled(self) -> bool:
        """Whether one of HUD's rules decided the outcome; if the rule only says that a case passes as before, margins decided."""
        return self.hud is not None and not (self.hud.label == "neutral" and isinstance(self.hud.old, str))

    @property
    def effect(self) -> str:
        """Size and interval in words; empty if there is no ratio."""
        if self.ratio is None or self.margin is None:
            return ""
        return effects.effect(self.ratio, self.low, self.high, self.verdict, margin=self.margin, metric=self.metric, paired=self.paired)

    @property
    def size(self) -> float:
        """The size of the change in either direction, for sorting the worst first."""
        return abs(math.log(self.ratio)) if self.ratio else math.inf


@dataclass(frozen=True)
class Judgement:
    """The verdict, its findings, worst first within each kind, and notes. `suite` is the statement about all cases; it counts if it is a
    regression. `conditions` are those of base and head.
    """

    outcome: Outcome
    exit_code: int
    base: str
    head: str
    findings: list[Judged] = field(default_factory=list)
    means: dict[str, Mean] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    policy: str = ""
    suite: Judged | None = None
    conditions: dict[str, Conditions] = field(default_factory=dict)
    schema: int = SCHEMA

    def of(self, *kinds: Kind) -> list[Judged]:
        """The findings of some kinds, in order."""
        return [finding for finding in self.findings if finding.kind in kinds]

    @property
    def compared(self) -> int:
        """How many comparisons there were."""
        return sum(finding.compared for finding in self.findings if finding.kind != "new pass")

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        counted = Counter(finding.kind for finding in self.findings if finding.counts)
        ruled = sum(finding.counts and finding.ruled for finding in self.of("regression"))
        counts = [(ruled, "worse by HUD's rules"), (counted["regression"] - ruled, WORDS["regression"])]
        counts += [(counted[kind], words) for kind, words in WORDS.items() if kind != "regression"]
        said = [f"{count} {words}" for count, words in counts if count]
        number = f"{self.compared} comparison{'' if self.compared == 1 else 's'}"
        left = [f"{len(found)} {WORDS[kind]}" for kind in OPEN if (found := self.of(kind))]
        if self.outcome in ("pass", "inconclusive") and left:
            decided = self.compared - len(self.of(*OPEN))
            share = f"no regression in the {decided} of {number} that are settled" if decided else f"none of {number} is settled"
            together = [f"{self.suite.case} {self.suite.effect}"] if self.suite and not decided else []
            return f"{self.outcome}: {'; '.join([share, ', '.join(left), *together])}"
        if self.outcome == "pass":
            said = [f"no regression in {number}"]
        elif counted["regression"]:
            said[0] += f" in {number}"
        elif self.suite and self.suite.counts:
            said.insert(0, f"{self.suite.case} {self.suite.effect}")
        return f"{self.outcome}: {', '.join(said)}" if said else f"{self.outcome}: no case has a ratio"


def gate(
    base: RunsSide, head: RunsSide, policy: Policy, *, strict: bool = False, allow_edited: bool = False, confirm: Confirm | None = None
) -> Judgement:
    """Compare, confirm if `confirm` is given, and judge; a run compared with itself is judged by its own pairs."""
    policy, said = with_figures(policy, (*base.runs, *head.runs))
    check_metrics(policy.metrics, (*base.runs, *head.runs), "figure of these runs", f"{policy.where}  margins" if policy.where else "")
    comparison = compare_under(policy, base, head, allow_edited=allow_edited)
    if confirm:
        comparison = confirmed(comparison, policy, confirm)
    return judge(replace(comparison, notes=[*comparison.notes, *said]), base, head, policy, strict=strict)


def compare_under(policy: Policy, base: RunsSide, head: RunsSide, *, allow_edited: bool = False) -> Comparison:
    """The comparison under the policy's margins; a case with its own margins is taken from a comparison under those."""

    def under(margins: Mapping[str, float]) -> Comparison:
        return compare(
            base, head, margins=margins, metrics=policy.metrics, floor=policy.floor, alpha=policy.alpha, allow_edited=allow_edited
        )

    whole = under(policy.margins)
    made = {tuple(policy.margins.items()): whole.deltas}
    deltas = []
    for place, delta in enumerate(whole.deltas):
        margins = policy.margins_of(delta.head)
        if (key := tuple(margins.items())) not in made:
            made[key] = under(margins).deltas
        deltas.append(made[key][place])
    return replace(whole, deltas=deltas, suite=suite_under(policy, replace(whole, deltas=deltas)))


def confirmed(comparison: Comparison, policy: Policy, confirm: Confirm) -> Comparison:
    """Measure cases that look slower or are too noisy again, interleaved, and use the new results; cases that cannot be measured keep the
    old ones."""
    counted = [delta for delta in comparison.deltas if not excuse(policy, delta.head, "slower", delta.ratio)]
    slow = list({delta.head: delta for delta in counted if looks_slower(delta)}.values())
    noise = {delta.head: _noise(delta, comparison.figures.get("time", {})) for delta in counted if delta not in slow}
    noisy = [delta for delta in counted if delta not in slow and _open(delta) and noise[delta.head] > delta.margin]
    hidden = sorted(noisy, key=lambda delta: -noise[delta.head])
    if not slow and not hidden:
        return replace(comparison, notes=[*comparison.notes, "nothing looked slower, so nothing was measured again"])
    left = hidden[MOST_HIDDEN:]
    name = "that looked slower" if not hidden else "that looked slower or were too noisy to tell" if slow else "that were too noisy to tell"
    deltas, notes = replaced(comparison.deltas, [*slow, *hidden[:MOST_HIDDEN]], confirm, name)
    notes += [f"{len(left)} more cases were too noisy to tell and were not measured again"] if left else []
    made = replace(comparison, deltas=deltas, means=mean_ratios(deltas), notes=[*comparison.notes, *notes])
    return replace(made, suite=suite_under(policy, made))


def looks_slower(delta: Delta) -> bool:
    """Whether runs made apart found a case slower, or its ratio is beyond the margin and only noise kept it from being called slower."""
    return suspicious(delta) and delta.ratio is not None and delta.ratio > 1


def _open(delta: Delta) -> bool:
    return delta.verdict == "unclear" and not delta.paired and delta.metric == "time" and bool(delta.ratio)


def _noise(delta: Delta, times: Mapping[str, Both]) -> float:
    """The relative half-width of the wider of two intervals: a smaller change would not be detected."""
    ends = [(figure.value, figure.low, figure.high) for figure in times.get(delta.head, ()) if figure]
    return max((0.5 * (high - low) / value for value, low, high in ends if low is not None and high is not None and value > 0), default=0.0)


def judge(comparison: Comparison, base: RunsSide, head: RunsSide, policy: Policy, *, strict: bool = False) -> Judgement:
    """Judge every delta and every failure by the policy."""
    alone = base.runs == head.runs
    before, after = ({id: records[max(records)] for id, records in held(side.runs).items()} for side in (base, head))
    found: dict[tuple[str, ...], Judged] = {}
    for finding in (
        *_passes(comparison, after, policy),
        *_changes(comparison, before, after, policy),
        *_failures(comparison, after, alone),
        *(() if alone else _broken_graphs(before, after)),
    ):
        finding = recast(finding, policy.hud, before, after) if policy.hud else finding
        told_apart = finding.metric if finding.ratio is not None else "" if finding.kind in ("failed", "new pass") else finding.reason
        found.setdefault((finding.case, finding.kind, told_apart), finding)
    scale = _Scale(policy, before, after, strict=strict or policy.unclear == "fail", alone=alone)
    again = repeat_lines((*base.runs, *head.runs))
    judged = [replace(scale.weighed(finding), repeat=again(finding.case, finding.base)) for finding in found.values()]
    findings = sorted(judged, key=lambda item: (KINDS.index(item.kind), not item.counts, -item.size))
    ruled = rules_time(policy, after.values())
    suite = None if ruled else _together(suite_under(policy, comparison), findings, policy)
    decisive = [*findings, *([suite] if suite else [])]
    codes = [CODES[finding.kind] for finding in decisive if finding.counts]
    comparable = comparison.comparable or any(finding.compared for finding in findings)
    code = exit_code(codes if comparable else [*codes, NOTHING])
    suspected = any(finding.kind in ("not confirmed", "slower") and not finding.excuse for finding in findings)
    decided = any(map(_decided, findings)) or (suite is not None and _decided(suite) and not suspected)
    outcome = OUTCOMES[code] if code != PASS or decided else OUTCOMES[INCONCLUSIVE]
    notes = [*comparison.notes, *_policy_notes(policy, {*before, *after}, {delta.metric for delta in comparison.deltas} if alone else None)]
    told = (findings, comparison.means, notes, policy.where, suite, comparison.conditions)
    return Judgement(outcome, code, comparison.base, comparison.head, *told)


def suite_under(policy: Policy, comparison: Comparison) -> Suite | None:
    """The statement about all cases without an excuse, under their margins and with the repeated measurements."""
    excused = {delta.head for delta in comparison.deltas if excuse(policy, delta.head, "slower", delta.ratio)}
    deltas = [replace(delta, margin=max(delta.margin, policy.floor or 0.0)) for delta in comparison.deltas]
    suite = retold(comparison.suite, [delta for delta in deltas if delta.head not in excused])
    return narrowed(suite, deltas, excused, policy.alpha)


def _together(suite: Suite | None, findings: Sequence[Judged], policy: Policy) -> Judged | None:
    """The verdict on all cases together: a shift that they share is a regression, though each alone may be unclear.

    It counts if at least one of its cases is a regression or open: the policy has decided on excused cases, and cases settled within
    their own margins are decided too.
    """
    if suite is None:
        return None
    kind = _kind(suite.delta, {}, {}, sure=policy.unconfirmed == "fail")
    reason = f"{suite.reason}{f': {suite.do}' if suite.do else ''}"
    made = replace(_finding(kind, suite.delta, reason), case=f"all {suite.cases} cases together", base="")
    left = any(
        item.metric == "time"
        and item.kind in ("regression", *OPEN)
        and not (item.excuse or excuse(policy, item.case, "slower", item.ratio))
        for item in findings
    )
    return replace(made, counts=kind == "regression" and left and not excuse(policy, made.case, "slower"))


def _decided(finding: Judged) -> bool:
    """Whether a comparison is decided; an excused one is decided by the policy."""
    return bool(finding.excuse) or (finding.compared and finding.kind not in OPEN)


def _changes(comparison: Comparison, before: Records, after: Records, policy: Policy) -> Iterator[Judged]:
    for delta in (_above(delta, policy.floor or 0.0) for delta in comparison.deltas):
        was, now = comparison.figures.get(delta.metric, {}).get(delta.head, (None, None))
        steady = any(figure and figure.unit in STEADY_UNITS for figure in (was, now))
        yield replace(_finding(_kind(delta, before, after, sure=steady or policy.unconfirmed == "fail"), delta), was=was, now=now)


def _above(delta: Delta, floor: float) -> Delta:
    """The delta with a margin no smaller than the noise floor, below which a change means nothing."""
    if delta.ratio is None or floor <= delta.margin:
        return delta
    return replace(delta, margin=floor, verdict="same" if effects.within(delta.low, delta.high, floor) else delta.verdict)


def _kind(delta: Delta, before: Records, after: Records, *, sure: bool) -> Kind:
    """The outcome of a delta; `sure` if runs made apart may decide, as for bytes, which do not drift with the machine."""
    here, there = after.get(delta.head), before.get(delta.base)
    if delta.verdict == "failed" or (delta.verdict == "incomparable" and any(side and side.status != "ok" for side in (here, there))):
        if here and here.status == "ok" and there and there.status != "ok":
            return "new pass"
        return "missing" if here and here.status not in ("ok", *BAD) else "failed"
    if delta.verdict == "slower" and delta.material:
        return "regression" if delta.paired or sure else "not confirmed"
    return "improvement" if delta.verdict == "faster" and delta.material else delta.verdict


def _finding(kind: Kind, delta: Delta, reason: str = "") -> Judged:
    ends = (delta.ratio, delta.low, delta.high, delta.margin)
    return Judged(kind, delta.head, delta.base, delta.metric, *ends, delta.paired, reason or delta.reason, verdict=delta.verdict)


def _failures(comparison: Comparison, after: Records, alone: bool) -> Iterator[Judged]:
    """Broken cases without a delta: those only in head, and in a single run those without a base."""
    for id in after if alone else comparison.new:
        if after[id].status in BAD:
            words = status_words(after[id])
            yield Judged("failed", id, id, reason=words if alone else f"not in base, and {words} in head")


def _broken_graphs(before: Records, after: Records) -> Iterator[Judged]:
    """Compiled cases with more graph breaks than in base, which timing may not show."""
    for id in after.keys() & before.keys():
        was, now = (records[id].effective.get("graph_breaks") for records in (before, after))
        if type(was) is int and type(now) is int and now > was:
            yield Judged("failed", id, id, reason=f"{number_of(now, 'graph break')}, where base has {was or 'none'}")


def _passes(comparison: Comparison, after: Records, policy: Policy) -> Iterator[Judged]:
    """Cases expected to be bad that are not: the policy can be tightened."""
    for item in policy.expected:
        for id in filter(item.fits, after):
            reason = f"expected {item.outcome}{f' ({item.reason})' if item.reason else ''}"
            deltas = [delta for delta in comparison.deltas if delta.head == id]
            if item.outcome in BAD and after[id].status == "ok":
                yield Judged("new pass", id, id, reason=f"{reason}, but passes")
            elif item.outcome == "slower" and deltas and all(delta.verdict in ("same", "faster") for delta in deltas):
                yield _finding("new pass", deltas[0], f"{reason}, but is {deltas[0].verdict}")


def excuse(policy: Policy, case: str, outcome: str, ratio: float | None = None) -> str:
    """The policy's excuse for an outcome of a case (`ratio` is its change, if any); empty if there is none."""

    def words(kind: str, item: Excuse) -> str:
        return f"{kind}: {item.reason}" if item.reason else kind

    kinds = {"expected": policy.expected, "allowed": policy.allowed, "known": policy.known}
    named = [(kind, item) for kind, items in kinds.items() for item in items]
    return next((words(kind, item) for kind, item in named if item.fits(case) and item.covers(outcome, ratio)), "")


@dataclass(frozen=True)
class _Scale:
    """Whether a finding counts, by the policy."""

    policy: Policy
    before: Records
    after: Records
    strict: bool
    alone: bool

    def weighed(self, finding: Judged) -> Judged:
        if finding.kind not in CODES:
            return finding
        why = excuse(self.policy, finding.case, self._outcome(finding), finding.ratio)
        return replace(finding, excuse=why, counts=not why and self._matters(finding))

    def _outcome(self, finding: Judged) -> str:
        record = self.after.get(finding.case)
        broken = record.status if record and record.status in BAD else ""
        if finding.kind == "failed" or (finding.kind == "regression" and broken):
            return broken or "failed"
        return "slower" if finding.kind in ("regression", "not confirmed") else finding.kind

    def _matters(self, finding: Judged) -> bool:
        if CODES[finding.kind] == INCONCLUSIVE:
            return self.strict
        if finding.kind == "regression" or self.alone:
            return True
        base, head = self.before.get(finding.base), self.after.get(finding.case)
        if finding.kind == "missing" and base is None:
            return self.policy.missing == "fail"
        had = base is not None and base.status == "ok"
        if finding.kind == "failed":
            return had
        gained = head is not None and head.status == "ok" and finding.metric in head.metrics
        return had and not gained and self.policy.missing == "fail"


def _policy_notes(policy: Policy, cases: set[str], weighed: set[str] | None) -> Iterator[str]:
    """Notes on parts of a policy that have no effect; `weighed` are the metrics in the pairs of a single run."""
    patterns = [(key, item.pattern) for key, items in (("expected", policy.expected), ("allowed", policy.allowed)) for item in items]
    for key, pattern in (*patterns, *(("cases", pattern) for pattern in policy.cases)):
        if not any(Excuse(pattern).fits(case) for case in cases):
            yield f'{key}."{pattern}" in the policy fits no case'
    others = [metric for metric in policy.metrics if weighed is not None and metric not in ("time", *weighed)]
    if others:
        yield f"pairs compare only time, so {', '.join(others)} was not judged"
