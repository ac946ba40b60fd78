"""Compares two sides of stored runs case by case: what changed, what cannot be compared, and what is missing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from typing import NamedTuple

from steelyard.analyze.conditions import Conditions, of_sides
from steelyard.analyze.lost import lost_cases, lost_pairs
from steelyard.analyze.noise import Past
from steelyard.analyze.provenance import describe, weighed_commits
from steelyard.analyze.suite import Suite, retold, together
from steelyard.analyze.unpaired import CHANGED, Both, Question, answer, held, not_ok, silent
from steelyard.errors import UsageError, unknown
from steelyard.model.case import Case
from steelyard.model.effects import COMPARABLE, change
from steelyard.model.pair import ALPHA, MARGIN, Delta, Pair, told_from_chance, weigh, weigh_part
from steelyard.model.parts import TOLD, WEIGHED, generates
from steelyard.model.record import NOT_WEIGHED, Record, unweighed
from steelyard.store.runs import Run

Confirm = Callable[[list[Delta]], tuple[list[Pair], dict[str, str]]]
"""Measures cases again, interleaved; returns the new pairs, and the reason for each case that has none."""
MOST_NAMED = 4
OWN_METRICS = ("time", *WEIGHED)
"""The metrics compared in the pairs of a run: the whole time, and their parts."""


@dataclass(frozen=True)
class RunsSide:
    """One side of a comparison: one or several runs, oldest first, native or read from another tool's file.

    `past` is the noise known from earlier runs on the same machine, if a store has them; a comparison uses the head's.
    """

    name: str
    runs: tuple[Run, ...]
    past: Past | None = None


class Mean(NamedTuple):
    """A geometric mean of head over base over `n` cases, with the widest possible interval: the errors of all cases add up.

    `low` and `high` are None if a case has no interval.
    """

    ratio: float
    n: int
    low: float | None = None
    high: float | None = None

    def words(self, metric: str) -> str:
        """`4.0 % slower [3.1, 4.9], geometric mean of 20` or `unclear [-1.1, 3.0], geometric mean of 20`, the words of every report."""
        return f"{change(self.ratio, self.low, self.high, metric=metric)}, geometric mean of {self.n}"


@dataclass(frozen=True)
class Comparison:
    """Every case of the base with its delta or the reason why it has none, and notes.

    `deltas` has one per case and metric, in the order of base; `new` are the cases only in head. `means` maps a metric to
    the geometric mean of head over base. `figures` maps metric and case of a delta's head
    to both sides' figures. `suite` is the common change of time of all cases, if there are enough, and `conditions` maps base and
    head to the conditions under which they were measured.
    """

    base: str
    head: str
    deltas: list[Delta] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    means: dict[str, Mean] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, dict[str, Both]] = field(default_factory=dict)
    suite: Suite | None = None
    conditions: dict[str, Conditions] = field(default_factory=dict)

    @property
    def comparable(self) -> list[Delta]:
        """The deltas with a ratio; if there are none, nothing was compared."""
        return [delta for delta in self.deltas if delta.ratio is not None]


def compare(
    base: RunsSide,
    head: RunsSide,
    *,
    margins: Mapping[str, float] = {},
    metrics: Sequence[str] = ("time",),
    floor: float | None = None,
    alpha: float = ALPHA,
    allow_edited: bool = False,
    confirm: Confirm | None = None,
) -> Comparison:
    """Match cases by id and judge each; a run compared with itself is judged by its own pairs."""
    if base.runs == head.runs:
        return own_pairs(head, margins=margins, metrics=metrics)
    if both := {run.id for run in base.runs if run in head.runs}:
        raise UsageError(f"run {', '.join(sorted(both))} is on both sides", do="name different runs for base and head")
    sides, asked = (held(base.runs), held(head.runs)), list(dict.fromkeys(metrics))
    check_metrics(asked, (*base.runs, *head.runs), "metric")
    asked = [metric for metric in asked if metric != "time" or len(asked) == 1 or timed((*base.runs, *head.runs))]
    questions = [Question(metric, margins.get(metric, MARGIN), alpha, floor, allow_edited) for metric in asked]
    answers = {question.metric: answer(question, (base.runs, head.runs), sides, head.past) for question in questions}
    deltas = [found.deltas[id] for id in sides[0] for found in answers.values() if id in found.deltas]
    gone = lost_cases(base.runs) | lost_cases(head.runs)
    lost = {id: why for id, why in gone.items() if not (id in sides[0] and id in sides[1])}
    deltas = [replace(delta, reason=lost.get(delta.head, delta.reason)) for delta in deltas]
    deltas += [silent(id, asked[0], questions[0].margin, "missing", why) for id, why in lost.items() if id not in sides[0]]
    shared = [id for id in sides[0] if id in sides[1]]
    notes, under = describe(base.runs, head.runs, shared), of_sides(base.runs, head.runs, shared, shared)
    notes += [note for found in answers.values() for note in found.notes]
    if confirm:
        deltas, said = _confirmed(deltas, confirm)
        notes += said
    new = [id for id in sides[1] if id not in sides[0] and id not in lost]
    figures = {metric: found.figures for metric, found in answers.items()}
    suite = retold(answers["time"].suite if "time" in answers else None, deltas)
    return Comparison(base.name, head.name, deltas, new, mean_ratios(deltas), list(dict.fromkeys(notes)), figures, suite, under)


def own_pairs(side: RunsSide, *, margins: Mapping[str, float] = {}, metrics: Sequence[str] = OWN_METRICS) -> Comparison:
    """The comparisons inside a run: its pairs (measured with `--vs`) and their parts."""
    margin = margins.get("time", MARGIN)
    deltas: dict[tuple[str, ...], Delta] = {}
    figures: dict[str, dict[str, Both]] = {"time": {}}
    for id, why in lost_cases(side.runs).items():
        deltas["", id] = silent(id, "time", margin, "missing", why, paired=True)
    for run in side.runs:
        for id, why in lost_pairs(run).items():
            deltas["", id] = silent(id, "time", margin, "missing", why, paired=True)
        records, bases = {record.id: record for record in run.records}, Counter(pair.head.id for pair in run.pairs)
        for pair in run.pairs:
            whole = deltas[pair.base.id, pair.head.id] = _own_delta(pair, records, margins.get("time"))
            alone = bases[pair.head.id] == 1
            figures["time"][pair.head.id] = _own_times(pair, records) if alone else (None, None)
            for name in [name for name in metrics if name in pair.parts and whole.verdict in COMPARABLE]:
                deltas[pair.base.id, pair.head.id, name] = weigh_part(pair, name, margins.get(name))
                part = pair.parts[name]
                figures.setdefault(name, {})[pair.head.id] = (part.base, part.head) if alone else (None, None)
        for head, base in run.header.pairs:
            if (base, head) not in deltas:
                left = silent(head, "time", margin, "failed", "its comparison was planned, but not measured", paired=True)
                deltas[base, head] = replace(left, base=base)
        for id, why in unweighed(run.records).items():
            deltas["", id] = silent(id, "time", margin, "failed", f"{NOT_WEIGHED}{why}", paired=True)
    weighed = {id for delta in deltas.values() for id in (delta.base, delta.head)}
    unpaired = len({record.id for run in side.runs for record in run.records if record.id not in weighed})
    notes = ["paired: both arms were measured interleaved in the same run"] if any(run.pairs for run in side.runs) else []
    if unpaired:
        notes.append(f"{unpaired} case{'' if unpaired == 1 else 's'} had no partner to be compared with")
    pairs = [pair for run in side.runs for pair in run.pairs]
    notes += weighed_commits(pairs)
    under = of_sides(side.runs, side.runs, (pair.base.id for pair in pairs), (pair.head.id for pair in pairs))
    known = [delta for delta in deltas.values() if delta.metric in metrics or delta.ratio is None]
    found = told_from_chance(sorted(known, key=lambda delta: metrics.index(delta.metric) if delta.metric in metrics else 0))
    hows = {delta.head.rpartition("@")[2].rpartition(":")[0] for delta in found}
    suite = together(found) if len(hows) == 1 else None
    return Comparison(side.name, side.name, found, [], mean_ratios(found), notes, figures, suite, under)


def _own_times(pair: Pair, records: Mapping[str, Record]) -> Both:
    """Both arms' times in the blocks that were compared.

    Old runs do not have these; the records' times, measured apart, are used instead, unless both arms are one case with one record.
    """
    if pair.base.id == pair.head.id or (pair.base.time and pair.head.time):
        return pair.base.time, pair.head.time
    alone = [records.get(arm.id) for arm in (pair.base, pair.head)]
    times = [record.metrics.get("time") if record else None for record in alone]
    return times[0], times[1]


def _own_delta(pair: Pair, records: Mapping[str, Record], margin: float | None) -> Delta:
    """The verdict of a pair by `margin`, or by its own margin if that is None."""
    margin = pair.margin if margin is None else margin
    if found := not_ok(records.get(pair.base.id), records.get(pair.head.id)):
        return replace(silent(pair.head.id, "time", margin, *found, paired=True), base=pair.base.id)
    return weigh(pair, margin)


def suspicious(delta: Delta) -> bool:
    """Whether to measure a case again, interleaved: it is judged a change, or its ratio is beyond the margin and only noise kept it from
    being judged one."""
    if delta.paired or delta.ratio is None or delta.metric != "time":
        return False
    beyond = not 1 / (1 + delta.margin) <= delta.ratio <= 1 + delta.margin
    return delta.verdict in CHANGED or (delta.verdict == "unclear" and beyond)


def _confirmed(deltas: Sequence[Delta], confirm: Confirm) -> tuple[list[Delta], list[str]]:
    suspects = sorted(filter(suspicious, deltas), key=lambda delta: 1.0 if delta.p is None else delta.p)
    if not suspects:
        return list(deltas), ["no case looked changed, so nothing was measured again"]
    return replaced(deltas, suspects, confirm, "suspicious cases")


def replaced(deltas: Sequence[Delta], suspects: Sequence[Delta], confirm: Confirm, name: str) -> tuple[list[Delta], list[str]]:
    """Replace deltas by those measured again, interleaved; cases that could not be measured keep theirs, and a note says why. The new pairs
    are judged together, like the pairs of any run.
    """
    chosen = {delta.head for delta in suspects}
    found, reasons = confirm(list(suspects))
    pairs = {pair.head.id: pair for pair in found if pair.head.id in chosen}
    again = {place: item for place, item in enumerate(deltas) if item.head in pairs and item.metric in ("time", *pairs[item.head].parts)}
    judged = told_from_chance([replace(_again(pairs[item.head], item), base=item.base) for item in again.values()])
    fresh = dict(zip(again, judged, strict=True))
    left = sorted(chosen - set(pairs))
    notes = [f"{len(pairs)} of {len(chosen)} {name} were measured again, interleaved"]
    notes += [f"not confirmed, so judged as before: {id}: {reasons.get(id) or 'no reason is known'}" for id in left[:MOST_NAMED]]
    notes += [f"and {len(left) - MOST_NAMED} more could not be confirmed"] if len(left) > MOST_NAMED else []
    return [fresh.get(place, item) for place, item in enumerate(deltas)], notes


def _again(pair: Pair, item: Delta) -> Delta:
    return weigh(pair, item.margin) if item.metric == "time" else weigh_part(pair, item.metric, item.margin)


def timed(runs: Sequence[Run]) -> bool:
    """Whether any record of these runs has a time; files of other tools may have only other figures."""
    return any("time" in record.metrics for run in runs for record in run.records)


def usual_metrics(runs: Sequence[Run]) -> tuple[str, ...]:
    """The metrics compared by default: time, and for requests its parts; if no record has a time, every metric whose better direction is
    known."""
    if timed(runs):
        parts = {name for run in runs for record in run.records if generates(record.metrics) for name in record.metrics}
        return tuple(name for name in ("time", *TOLD) if name == "time" or name in parts)
    known = (name for run in runs for record in run.records for name, figure in record.metrics.items() if figure.better != "none")
    return tuple(dict.fromkeys(known)) or ("time",)


def check_metrics(metrics: Sequence[str], runs: Sequence[Run], kind: str, where: str = "") -> None:
    """Raise an error for a metric that no record has, because it is misspelt or an option of `run` was missing."""
    known = {name for run in runs for record in run.records for name in record.metrics}
    known |= {name for run in runs for pair in run.pairs for name in pair.parts}
    for metric in metrics:
        if metric not in known and metric != "time":
            raise unknown(kind, metric, known, where=where)


def mean_ratios(deltas: Sequence[Delta]) -> dict[str, Mean]:
    """Geometric mean of head over base by metric, over the cases that both sides have and whose ratio is sound.

    Empty for a run that compares with several bases, since a ratio to numpy and one to eager have no meaningful mean.
    """
    known: dict[str, list[Delta]] = {}
    for delta in deltas:
        if delta.sound:
            known.setdefault(delta.metric, []).append(delta)
    if len(base_kinds(deltas)) > 1:
        return {}
    return {
        metric: Mean(
            geometric_mean(delta.ratio or 1.0 for delta in found), len(found), *reach([(delta.low, delta.high) for delta in found])
        )
        for metric, found in known.items()
    }


def base_kinds(deltas: Sequence[Delta]) -> set[str]:
    """The stacks that these deltas have as their base: variants, or `backend/variant` where base and head differ in the backend."""
    stacks = {tuple(id.rpartition("@")[2] for id in (delta.base, delta.head)): delta for delta in deltas}
    found = set()
    for delta in stacks.values():
        with contextlib.suppress(UsageError):
            base, head = Case.parse(delta.base), Case.parse(delta.head)
            if base.backend != head.backend:
                found.add(f"{base.backend}/{base.variant}")
            elif base.variant != head.variant:
                found.add(base.variant)
    return found


def reach(ends: Sequence[tuple[float | None, float | None]]) -> tuple[float | None, float | None]:
    """The interval of a geometric mean from the intervals of its terms; (None, None) if one of those is open."""
    lows, highs = ([end for end in side if end] for side in ([low for low, _ in ends], [high for _, high in ends]))
    if not ends or len(lows) + len(highs) < 2 * len(ends):
        return None, None
    return geometric_mean(lows), geometric_mean(highs)
