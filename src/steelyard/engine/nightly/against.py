"""Compare tonight with the base night of each case; different cases often have different base nights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from steelyard.analyze import gate
from steelyard.analyze.compare import Comparison, Confirm, RunsSide, mean_ratios, replaced
from steelyard.analyze.gate import Judged, Judgement
from steelyard.analyze.noise import Past
from steelyard.analyze.provenance import commit_of
from steelyard.analyze.unpaired import Both
from steelyard.codec.policy import Policy
from steelyard.engine.nightly.lines import Night, Withheld
from steelyard.engine.nightly.standing import Base, Tonight, is_fixed
from steelyard.errors import SteelyardError, exit_code, told
from steelyard.model.pair import MARGIN, Delta
from steelyard.model.record import Record
from steelyard.store.runs import Run

Again = dict[str, Confirm]
"""By the base's run id: the function that measures cases again, interleaved with that base."""


@dataclass(frozen=True)
class Before:
    """What a night is compared with: earlier nights of its experiment and machine, the base of every case, and the runs of the bases.

    `open` reads the run of any night.
    """

    nights: Sequence[Night] = ()
    bases: Mapping[str, Base] = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    open: Callable[[str], Run | None] = lambda run: None

    def grouped(self) -> dict[str, list[str]]:
        """Return the cases by the run of their base: bases of cases known to be slower first, then the base of most cases."""
        found: dict[str, list[str]] = {}
        for case, base in self.bases.items():
            if base.run in self.runs:
                found.setdefault(base.run, []).append(case)
        places = {night.run: place for place, night in enumerate(self.nights)}
        slower = {base.run for base in self.bases.values() if base.told_slower}
        return dict(sorted(found.items(), key=lambda item: (item[0] not in slower, -len(item[1]), -places.get(item[0], -1))))


def hold(
    run: Run, before: Before, policy: Policy, again: Again, *, allow_edited: bool = False, past: Past | None = None
) -> tuple[RunsSide, RunsSide, Comparison] | None:
    """Compare every case with its own base; measure cases again that look slower or are known to be. None if there is no base.

    All bases together are one side, as if they were one run, because the gate and the reports compare two sides.
    """
    groups = before.grouped()
    if not groups:
        return None
    head = name_of(run)
    parts = []
    for id, cases in groups.items():
        base = before.runs[id]
        sides = RunsSide(name_of(base), (only(base, cases),)), RunsSide(head, (only(run, cases),), past)
        part = gate.compare_under(fitting(policy, sides, run), *sides, allow_edited=allow_edited)
        if id in again:
            part = confirmed(part, policy, again[id], [case for case in cases if before.bases[case].told_slower])
        parts.append(part)
    main = before.runs[next(iter(groups))]
    others = len(groups) - 1
    name = name_of(main) + (f" and {others} other night{'' if others == 1 else 's'}" if others else "")
    records = [record for id, cases in groups.items() for record in only(before.runs[id], cases).records]
    new = [id for id in dict.fromkeys(record.id for record in run.records) if id not in before.bases]
    notes = [*_elsewhere(before, groups), *(note for part in parts for note in part.notes)]
    whole = replace(merged(parts), base=name, head=head, new=new, notes=list(dict.fromkeys(notes)))
    whole = replace(whole, suite=gate.suite_under(policy, whole))
    return RunsSide(name, (replace(main, records=tuple(records)),)), RunsSide(head, (run,)), whole


def merged(parts: Sequence[Comparison]) -> Comparison:
    """Join comparisons of different cases with one head into one; the result of the suite is that of the largest."""
    deltas = [delta for part in parts for delta in part.deltas]
    figures: dict[str, dict[str, Both]] = {}
    for part in parts:
        for metric, found in part.figures.items():
            figures.setdefault(metric, {}).update(found)
    largest = max(parts, key=lambda part: len(part.deltas))
    return replace(parts[0], suite=largest.suite, deltas=deltas, means=mean_ratios(deltas), figures=figures)


def _elsewhere(before: Before, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return notes on the cases that have another base night than most."""
    told_of = []
    for id, cases in list(groups.items())[1:]:
        shown = f"{len(cases)} cases are" if len(cases) > 1 else f"{cases[0]} is"
        told_of.append(f"{shown} compared with the night of {name_of(before.runs[id])}, the last good one for them")
    return told_of


def name_of(run: Run) -> str:
    return f"{run.header.created[:10]} ({run.id})"


def only(run: Run, cases: Collection[str]) -> Run:
    """Return the run with only the records of these cases."""
    wanted = set(cases)
    return replace(run, records=tuple(record for record in run.records if record.id in wanted))


def fitting(policy: Policy, sides: tuple[RunsSide, RunsSide], run: Run) -> Policy:
    """Return the policy without margins for figures that only other cases of tonight have."""
    here = {name for side in sides for record in side.runs[0].records for name in record.metrics}
    elsewhere = {name for record in run.records for name in record.metrics} - here - {"time"}

    def narrowed(margins: Mapping[str, float]) -> dict[str, float]:
        return {metric: margin for metric, margin in margins.items() if metric not in elsewhere}

    return replace(policy, margins=narrowed(policy.margins), cases={name: narrowed(own) for name, own in policy.cases.items()})


def confirmed(comparison: Comparison, policy: Policy, again: Confirm, pending: Collection[str] = ()) -> Comparison:
    """Measure the suspects and the cases in `pending` again; if that is not possible, add a note with the reason."""
    try:
        comparison = gate.confirmed(comparison, policy, again)
        left = [
            delta for delta in comparison.deltas if delta.head in pending and delta.metric == "time" and not delta.paired and delta.ratio
        ]
        if left:
            deltas, notes = replaced(comparison.deltas, left, again, "that were slower in the night before")
            comparison = replace(comparison, deltas=deltas, notes=[*comparison.notes, *notes])
    except SteelyardError as error:
        return replace(comparison, notes=[*comparison.notes, f"cases that looked slower could not be measured again: {told(error)}"])
    return comparison


def said_by(run: Run, before: Before, judgement: Judgement, deltas: Sequence[Delta], policy: Policy) -> Tonight:
    """Return tonight's results for choosing the next bases; unpaired results suffice if a case runs the same code as its base."""
    counted: dict[str, set[str]] = {}
    for finding in judgement.findings:
        if finding.counts:
            counted.setdefault(finding.case, set()).add(finding.kind)
    records = {record.id: record for record in run.records}

    def trusted(case: str) -> bool:
        base = before.bases.get(case)
        return policy.unconfirmed == "fail" or (base is not None and same_code(before.runs.get(base.run), run, case, records))

    excused = {case for case in before.bases if gate.excuse(policy, case, "slower")}
    return Tonight(run.id, deltas, counted, records, judgement.suite, excused.__contains__, trusted)


def carried(judgement: Judgement, before: Before, run: Run, deltas: Sequence[Delta], policy: Policy) -> Judgement:
    """Return the judgement with every earlier regression that tonight did not show to be fixed, or could not check."""
    tonight = said_by(run, before, judgement, deltas, policy)
    counted = {finding.case for finding in judgement.findings if _is_regression(finding)}
    kept = {id: base.pending for id, base in before.bases.items() if base.pending and base.told_slower}
    known = [
        replace(finding, reason=finding.reason or _since(kept[finding.case], before)) if _is_regression(finding) and finding.case in kept
        else finding
        for finding in judgement.findings
    ]  # fmt: skip
    extra = []
    for case, pending in kept.items():
        if pending.why != "regression" or case in counted or gate.excuse(policy, case, "slower"):
            continue
        if pending.together and judgement.suite and judgement.suite.counts:
            continue
        if is_fixed(pending, tonight) or same_code(before.runs.get(pending.base), run, case, tonight.records):
            continue
        seen = next((finding for finding in known if finding.case == case and finding.ratio is not None), None)
        words = f"{_since(pending, before)}, and this night does not show that it is fixed"
        extra.append(replace(seen or _of_then(pending, policy), kind="regression", counts=True, reason=words))
    places = {(finding.case, finding.metric) for finding in extra}
    rest = [finding for finding in known if finding.ratio is None or (finding.case, finding.metric) not in places]
    return with_findings(replace(judgement, findings=rest), extra)


def _of_then(pending: Withheld, policy: Policy) -> Judged:
    """Return a regression with the figures of the night that found it."""
    margin = policy.margins_of(pending.case).get(pending.metric, MARGIN)
    ends = (pending.ratio, pending.low, pending.high, margin)
    return Judged("regression", pending.case, pending.case, pending.metric, *ends, paired=True, verdict="slower")


def _is_regression(finding: Judged) -> bool:
    return finding.kind == "regression" and finding.counts


def _since(pending: Withheld, before: Before) -> str:
    """`slower since the night of 2026-01-05 (m2p4)`."""
    night = next((night for night in before.nights if night.run == pending.since), None)
    what = "drifted away, seen" if pending.drift else "slower"
    return f"{what} since the night of {night.date} ({pending.since})" if night else f"{what} since run {pending.since}"


def with_findings(judgement: Judgement, extra: Sequence[Judged]) -> Judgement:
    """Return the judgement with more findings, which can change its exit code and outcome."""
    findings = sorted([*extra, *judgement.findings], key=lambda item: (gate.KINDS.index(item.kind), not item.counts, -item.size))
    code = exit_code([judgement.exit_code, *(gate.CODES[finding.kind] for finding in extra if finding.counts)])
    outcome = judgement.outcome if code == judgement.exit_code else gate.OUTCOMES[code]
    return replace(judgement, findings=findings, exit_code=code, outcome=outcome)


def same_code(base: Run | None, head: Run, case: str, records: Mapping[str, Record]) -> bool:
    """Whether tonight ran the base's commit, without uncommitted changes, in the same environment: then nothing is left to fix."""
    if base is None:
        return False
    commits = [commit_of(run) for run in (base, head)]
    old = next((record for record in reversed(base.records) if record.id == case), None)
    new = records.get(case)
    if commits[0] != commits[1] or not commits[0][0] or commits[0][1] or old is None or new is None or new.status != "ok":
        return False
    return old.environment == new.environment and old.source == new.source
