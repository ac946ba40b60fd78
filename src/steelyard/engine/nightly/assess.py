"""The verdict on a night: against the last good one, with what looked slower measured again before it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from steelyard.analyze import gate
from steelyard.analyze.compare import Comparison, Confirm, Side
from steelyard.analyze.gate import Judgement
from steelyard.analyze.history import History, histories
from steelyard.analyze.provenance import commit_of
from steelyard.codec.policy import Policy
from steelyard.engine import conduct
from steelyard.engine.confirm import Again, confirm
from steelyard.engine.consent import Consent
from steelyard.engine.nightly.archive import NO_BASE, Night
from steelyard.engine.nightly.since import Since, appeared
from steelyard.errors import FAILED, SteelyardError, exit_code, told
from steelyard.model.pair import Delta
from steelyard.model.record import BAD
from steelyard.store.runs import Run, Store

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Terms:
    """How a night is judged: the gate's policy and options, whether suspects are measured again, and which runs of others are trusted."""

    policy: Policy = field(default_factory=Policy)
    strict: bool = False
    allow_edited: bool = False
    confirm: bool = True
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assessment:
    """All that is known of a night once it is measured; without a good night before it there is no comparison."""

    run: Run
    outcome: str
    exit_code: int
    headline: str
    base: Run | None = None
    sides: tuple[Side, Side] | None = None
    comparison: Comparison | None = None
    judgement: Judgement | None = None
    series: Mapping[str, History] = field(default_factory=dict)
    since: list[Since] = field(default_factory=list)

    @property
    def confirmed(self) -> int:
        """How many cases were measured again, interleaved."""
        return sum(delta.paired for delta in self.comparison.deltas) if self.comparison else 0

    @property
    def commits(self) -> str:
        """`a1b2c3d4e5..f6a7b8c9d0`: what lies between the base and this night, as `git log` takes it."""
        ends = [commit_of(run)[0][:10] for run in (self.base, self.run) if run]
        return "" if not all(ends) else ends[0] if len(set(ends)) == 1 else "..".join(ends)


def assess(run: Run, base: tuple[Night, Run] | None, terms: Terms, store: Store, *, mistaken: bool = False, tell: Tell) -> Assessment:
    """Judge a night, and look at its place in the longer history."""
    found = _against(run, base, terms, Consent(store, terms.trusted), mistaken, tell) if base else _alone(run, terms.policy, mistaken)
    cases = [record.id for record in run.records if record.status == "ok"]
    series = histories(store, cases, run.header.machine_key) if cases else {}
    return replace(found, series=series, since=appeared(series, run.id, terms.policy))


def _alone(run: Run, policy: Policy, mistaken: bool) -> Assessment:
    """The verdict of a night that has nothing to be held against: what the run itself deserves, known failures aside."""
    left = [record for record in run.records if not (record.status in BAD and gate.excuse(policy, record.id, record.status))]
    code = conduct.judge(replace(run, records=tuple(left)), mistaken=mistaken)
    bad, good = (sum(record.status in statuses for record in left) for statuses in (BAD, ("ok",)))
    said = [f"{good} ok", *([f"{bad} failed"] if bad else []), "no good night before it to compare with"]
    return Assessment(run, NO_BASE, code, f"{NO_BASE}: {', '.join(said)}")


def _against(run: Run, base: tuple[Night, Run], terms: Terms, consent: Consent, mistaken: bool, tell: Tell) -> Assessment:
    night, before = base
    sides = Side(f"{night.date} ({before.id})", (before,)), Side(f"{run.header.created[:10]} ({run.id})", (run,))
    comparison = gate.compare_under(terms.policy, *sides, allow_edited=terms.allow_edited)
    if terms.confirm:
        comparison = confirmed(comparison, terms.policy, _again(before, run, consent, tell))
    judgement = gate.judge(comparison, *sides, terms.policy, strict=terms.strict)
    code = exit_code([judgement.exit_code, *([FAILED] if mistaken else [])])
    outcome = judgement.outcome if code == judgement.exit_code else gate.OUTCOMES[code]
    headline = judgement.headline if code == judgement.exit_code else f"{outcome}: the experiment has mistakes"
    return Assessment(run, outcome, code, headline, before, sides, comparison, judgement)


def _again(base: Run, head: Run, consent: Consent, tell: Tell) -> Confirm:
    def again(deltas: list[Delta]) -> Again:
        count = f"{len(deltas)} case{'' if len(deltas) == 1 else 's'}"
        tell(f"{count} looked slower than in run {base.id}: to be measured again, both commits interleaved")
        return confirm(base, head, [delta.head for delta in deltas], consent, min(delta.margin for delta in deltas))

    return again


def confirmed(comparison: Comparison, policy: Policy, again: Confirm) -> Comparison:
    """The comparison with its suspects measured again; where that cannot be done it stays as it was, and says why."""
    try:
        return gate.confirmed(comparison, policy, again)
    except SteelyardError as error:
        return replace(comparison, notes=[*comparison.notes, f"what looked slower is not confirmed: {told(error)}"])
