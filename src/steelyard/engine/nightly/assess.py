"""The verdict on a night: compared with the last good one; cases that look slower are measured again before they count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from steelyard.analyze import gate
from steelyard.analyze.compare import Comparison, Confirm, RunsSide
from steelyard.analyze.gate import Judgement
from steelyard.analyze.history import History, histories
from steelyard.analyze.noise import Past
from steelyard.analyze.past import learn
from steelyard.analyze.provenance import commit_of
from steelyard.codec.policy import Excuse, Policy
from steelyard.engine import conduct
from steelyard.engine.confirm import Again, confirm
from steelyard.engine.consent import Consent
from steelyard.engine.nightly.against import Before, carried, hold, said_by, with_findings
from steelyard.engine.nightly.drift import Drift, drifted, find_drift, findings_of, withheld_by
from steelyard.engine.nightly.lines import NO_BASE, Withheld
from steelyard.engine.nightly.since import Since, appeared
from steelyard.engine.nightly.standing import withhold
from steelyard.errors import FAILED, exit_code
from steelyard.model.pair import Delta
from steelyard.model.record import BAD
from steelyard.model.units import number_of
from steelyard.store.runs import Run, Store

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Terms:
    """How a night is judged: the gate's policy and options, whether suspects are measured again, and which foreign runs are trusted."""

    policy: Policy = field(default_factory=Policy)
    strict: bool = False
    allow_edited: bool = False
    confirm: bool = True
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """A measured night; without a good night before it there is no `base`, and no comparison."""

    run: Run
    outcome: str
    exit_code: int
    headline: str
    base: RunsSide | None = None
    comparison: Comparison | None = None
    judgement: Judgement | None = None
    series: Mapping[str, History] = field(default_factory=dict)
    since: list[Since] = field(default_factory=list)
    before: Before = field(default_factory=Before)
    withheld: list[Withheld] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    known: tuple[Excuse, ...] = ()

    @property
    def faster(self) -> list[str]:
        """The cases that are faster than their base; from now on, their drift is measured from this night."""
        deltas = self.comparison.deltas if self.comparison else []
        return list(dict.fromkeys(delta.head for delta in deltas if delta.metric == "time" and delta.verdict == "faster"))

    @property
    def confirmed(self) -> int:
        """How many cases were measured again, interleaved."""
        return sum(delta.paired for delta in self.comparison.deltas) if self.comparison else 0

    @property
    def commits(self) -> str:
        """`a1b2c3d4e5..f6a7b8c9d0`: the commits between the base and this night, as a range for `git log`."""
        ends = [commit_of(run)[0][:10] for run in (*(self.base.runs if self.base else ()), self.run)]
        return "" if not all(ends) else ends[0] if len(set(ends)) == 1 else "..".join(ends)


def assess(run: Run, before: Before, terms: Terms, store: Store, *, mistaken: bool = False, tell: Tell) -> Assessment:
    """Judge a night, and look at its place in the longer history."""
    cases = [record.id for record in run.records if record.status == "ok"]
    series = histories(store, cases, run.header.machine_key) if cases else {}
    past = learn({case: [(point.run, point.time) for point in item.points if point.run != run.id] for case, item in series.items()})
    consent = Consent(store, terms.trusted)
    found = _against(run, before, terms, consent, mistaken, tell, series, past) or _alone(run, terms.policy, mistaken)
    since = appeared(series, run.id, terms.policy)
    return replace(found, before=before, series=series, since=since, known=terms.policy.known)


def _alone(run: Run, policy: Policy, mistaken: bool) -> Assessment:
    """Judge a night without a base by its own results; known failures do not count."""
    left = [record for record in run.records if not (record.status in BAD and gate.excuse(policy, record.id, record.status))]
    code = conduct.judge(replace(run, records=tuple(left)), mistaken=mistaken)
    bad, good = (sum(record.status in statuses for record in left) for statuses in (BAD, ("ok",)))
    said = [f"{good} ok", *([f"{bad} failed"] if bad else []), "no good night before it to compare with"]
    return Assessment(run, NO_BASE, code, f"{NO_BASE}: {', '.join(said)}")


def _against(
    run: Run, before: Before, terms: Terms, consent: Consent, mistaken: bool, tell: Tell, series: Mapping[str, History], past: Past | None
) -> Assessment | None:
    policy = terms.policy
    again = {id: _again(before.runs[id], run, consent, tell) for id in before.grouped()} if terms.confirm else {}
    held = hold(run, before, policy, again, allow_edited=terms.allow_edited, past=past)
    if held is None:
        return None
    base, head, comparison = held
    deltas = comparison.deltas
    suspects = find_drift(run, before, series, past, deltas, policy)
    drift, notes = drifted(suspects, lambda anchor: _again(anchor, run, consent, tell), terms.confirm)
    comparison = replace(comparison, notes=[*comparison.notes, *notes])
    judgement = carried(gate.judge(comparison, base, head, policy, strict=terms.strict), before, run, deltas, policy)
    findings = findings_of(drift, policy, strict=terms.strict)
    judgement = with_findings(judgement, findings)
    code = exit_code([judgement.exit_code, *([FAILED] if mistaken else [])])
    outcome = judgement.outcome if code == judgement.exit_code else gate.OUTCOMES[code]
    headline = judgement.headline if code == judgement.exit_code else f"{outcome}: the experiment has mistakes"
    held_back = withhold(before.bases, said_by(run, before, judgement, deltas, policy))
    withheld = withheld_by(drift, held_back, findings, run.id)
    return Assessment(run, outcome, code, headline, base, comparison, judgement, withheld=withheld, drift=drift)


def _again(base: Run, head: Run, consent: Consent, tell: Tell) -> Confirm:
    def again(deltas: list[Delta]) -> Again:
        noisy = sum(not gate.looks_slower(delta) for delta in deltas)
        seen = [f"{number_of(len(deltas) - noisy, 'case')} looked slower than in run {base.id}"] if noisy < len(deltas) else []
        seen += [f"{number_of(noisy, 'case')} could not be distinguished from run {base.id}"] if noisy else []
        tell(f"{' and '.join(seen)}: measuring again, both commits interleaved")
        return confirm(base, head, [delta.head for delta in deltas], consent, min(delta.margin for delta in deltas))

    return again
