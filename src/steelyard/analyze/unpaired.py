"""One metric of two sides whose runs were made apart: which cases can be compared, and the deltas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from steelyard.analyze import noise
from steelyard.analyze.machines import MadeOn, unlike
from steelyard.analyze.provenance import alternating
from steelyard.analyze.suite import Suite, apart
from steelyard.measuring.evidence import Spread
from steelyard.measuring.stats import mean_interval, t_cdf, t_quantile
from steelyard.model.effects import change
from steelyard.model.pair import Delta, Verdict, benjamini_hochberg, judge
from steelyard.model.record import BAD, Figure, Record
from steelyard.store.runs import Run

NORMAL_95 = 1.959964
STEADY_UNITS = ("B",)
NOTABLE_SHIFT = 0.02
UNCONFIRMED = "unpaired, not confirmed"
UNPOSITIVE = "is not a positive number"
CHANGED: tuple[Verdict, ...] = ("slower", "faster")
NAMES = ("base", "head")

Held = dict[str, dict[int, Record]]
"""The records of a side: case -> number of the run -> the last record of that case in it."""
Both = tuple[Figure | None, Figure | None]


def held(runs: Sequence[Run]) -> Held:
    """A side's records by case, in the order in which the cases were first seen."""
    found: Held = {}
    for number, run in enumerate(runs):
        for record in run.records:
            found.setdefault(record.id, {})[number] = record
    return found


@dataclass(frozen=True)
class Question:
    """The options for comparing one metric; `floor` is the least noise between runs, if the user knows it."""

    metric: str
    margin: float
    alpha: float
    floor: float | None = None
    allow_edited: bool = False


@dataclass(frozen=True)
class Answer:
    """The deltas of one metric by case, the values behind them, notes, and for time the statement about all cases."""

    deltas: dict[str, Delta] = field(default_factory=dict)
    figures: dict[str, Both] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    suite: Suite | None = None


def answer(
    question: Question, runs: tuple[Sequence[Run], Sequence[Run]], sides: tuple[Held, Held], past: noise.Past | None = None
) -> Answer:
    """A delta for every case of the base; cases where neither side has this metric are left out, unless the metric is time."""
    metric = question.metric
    figures = {id: (figure_of(metric, base), figure_of(metric, sides[1].get(id, {}))) for id, base in sides[0].items()}
    logs: dict[str, noise.Logs] = {}
    deltas: dict[str, Delta] = {}
    for id, base in sides[0].items():
        found = _obstacle(question, runs, base, sides[1].get(id))
        if found:
            deltas[id] = silent(id, metric, question.margin, *found)
        elif any(figures[id]):
            logs[id] = _logs(metric, base, sides[1][id])
    told: list[str] = []
    suite = None
    if logs:
        alternate = alternating(*runs)
        unit = next(figure for id in logs for figure in figures[id] if figure).unit
        known = noise.between_runs(
            logs, default=noise.LEAST if unit in STEADY_UNITS else noise.DEFAULT, floor=question.floor,
            alternating=alternate, alpha=question.alpha, past=past if metric == "time" else None,
        )  # fmt: skip
        weighed, told = _weigh(question, logs, figures, known)
        deltas.update(weighed)
        if metric == "time":
            ratios = {id: item.ratio for id, item in logs.items()}
            suite = apart(ratios, question.margin, common=known.common, alternating=alternate, alpha=question.alpha)
    edited = sum(len(_sources(sides[0][id], sides[1][id])) > 1 for id in logs)
    if edited:
        told.append(f"the source of {edited} workload{'s' if edited > 1 else ''} was edited in between; compared anyway, as requested")
    return Answer({id: deltas[id] for id in sides[0] if id in deltas}, figures, told, suite)


def _obstacle(
    question: Question, runs: tuple[Sequence[Run], Sequence[Run]], base: Mapping[int, Record], head: Mapping[int, Record] | None
) -> tuple[Verdict, str] | None:
    """The verdict and reason for a case that cannot be compared; None if it can."""
    if head is None:
        return "missing", "not in head"
    if found := not_ok(base[max(base)], head[max(head)]):
        return found
    sides = zip((base, head), runs, strict=True)
    made = [[MadeOn.of(item, held_by[run].header.machine_key) for run, item in side.items()] for side, held_by in sides]
    keys = [{machine.key for machine in machines if machine.key} for machines in made]
    if len(keys[0] | keys[1]) > 1:
        return "incomparable", f"measured on different machines: base on {_listed(keys[0])}, head on {_listed(keys[1])}"
    if differing := unlike([*made[0], *made[1]]):
        return "incomparable", f"measured on machines of one description but different speed: {differing} on one than on the other"
    if len(_sources(base, head)) > 1 and not question.allow_edited:
        return "incomparable", "the workload's source was edited; --allow-edited compares it anyway"
    return _lacking(question.metric, base, head)


def _lacking(metric: str, base: Mapping[int, Record], head: Mapping[int, Record]) -> tuple[Verdict, str] | None:
    known = [any(metric in record.metrics for record in side.values()) for side in (base, head)]
    if not any(known):
        return ("incomparable", "no time was measured") if metric == "time" else None
    if not all(known):
        return "missing", f"{NAMES[known.index(False)]} has no {metric}"
    useless = [name for name, side in zip(NAMES, (base, head), strict=True) if not any(_positive(item, metric) for item in side.values())]
    return ("incomparable", f"{metric} of {' and '.join(useless)} {UNPOSITIVE}") if useless else None


def _sources(base: Mapping[int, Record], head: Mapping[int, Record]) -> set[str]:
    """Fingerprints of the workload's source; the variant's source is left out, since comparisons are often of a changed variant."""
    return {source for side in (base, head) for record in side.values() if (source := record.source.get("workload"))}


def _logs(metric: str, base: Mapping[int, Record], head: Mapping[int, Record]) -> noise.Logs:
    known = [{run: value for run, record in side.items() if (value := _positive(record, metric))} for side in (base, head)]
    within = sum(
        math.fsum(_within(side[run].metrics[metric]) for run in values) / len(values) ** 2
        for side, values in zip((base, head), known, strict=True)
    )
    sides = [{run: math.log(value) for run, value in values.items()} for values in known]
    return noise.Logs(sides[0], sides[1], within)


def _weigh(
    question: Question, logs: Mapping[str, noise.Logs], figures: Mapping[str, Both], known: noise.Noise
) -> tuple[dict[str, Delta], list[str]]:
    reach = {id: _reach(item.ratio, known.shift, known.spreads[id], question.alpha) for id, item in logs.items()}
    kept = dict(zip(reach, benjamini_hochberg([found.p for found in reach.values()], question.alpha), strict=True))
    deltas = {}
    for id, item in logs.items():
        better = next((figure.better for figure in reversed(figures[id]) if figure), "lower")
        verdict, reason = _verdict(question, reach[id], better, kept[id])
        low, high = noise.exp(reach[id].low), noise.exp(reach[id].high)
        deltas[id] = Delta(
            id, id, question.metric, noise.exp(item.ratio), low, high, question.margin, verdict, paired=False, reason=reason, p=reach[id].p
        )
    words = known.words if question.metric == "time" else f"{question.metric}: {known.words}"
    return deltas, [words, *_shift_words(question.metric, known.shift, len(logs))]


def _verdict(question: Question, reach: _Reach, better: str, kept: bool) -> tuple[Verdict, str]:
    """The verdict and its reason; `slower` is the bad direction for every metric, and `kept` is whether the change is clear among many."""
    verdict = judge(noise.exp(reach.low), noise.exp(reach.high), question.margin)
    if verdict not in CHANGED:
        together = verdict == "unclear" and not reach.bare_low <= 0 <= reach.bare_high
        return verdict, "all cases moved together, so it may be the machine" if together else ""
    if better == "none":
        return "unclear", f"it changed, but it is unknown which direction of {question.metric} is better"
    if not kept:
        return "unclear", "by itself it would count as a change, but among so many cases it may be chance"
    if better == "higher":
        verdict = "faster" if verdict == "slower" else "slower"
    return verdict, UNCONFIRMED


@dataclass(frozen=True)
class _Reach:
    """The interval of a log-ratio, its p-value, and the interval as it would be without the common shift."""

    low: float
    high: float
    p: float
    bare_low: float
    bare_high: float


def _reach(ratio: float, shift: float, spread: Spread, alpha: float) -> _Reach:
    """An interval that is valid whether the common shift comes from the machine or from the code."""
    half = t_quantile(1 - alpha / 2, spread.freedom) * spread.sd
    near, far = sorted((ratio, ratio - shift))
    distance = 0.0 if near <= 0 <= far else min(abs(near), abs(far))
    p = 2 * (1 - t_cdf(distance / spread.sd, spread.freedom))
    return _Reach(near - half, far + half, min(1.0, max(0.0, p)), ratio - half, ratio + half)


def _shift_words(metric: str, shift: float, count: int) -> list[str]:
    """A note on a shift common to all cases; for time the suite's statement has it, with an interval."""
    if metric == "time" or abs(shift) <= NOTABLE_SHIFT:
        return []
    by = change(noise.exp(shift), metric=metric)
    return [f"all {count} cases together: {by} {metric}; from the machine or from a change, which runs made apart cannot distinguish"]


def _positive(record: Record, metric: str) -> float | None:
    figure = record.metrics.get(metric) if record.status == "ok" else None
    return figure.value if figure and math.isfinite(figure.value) and figure.value > 0 else None


def _within(figure: Figure) -> float:
    """Variance of the log of a figure, from its own 95 % interval; 0 if it has none."""
    if figure.low is None or figure.high is None or not 0 < figure.low <= figure.high < math.inf:
        return 0.0
    return ((math.log(figure.high) - math.log(figure.low)) / (2 * NORMAL_95)) ** 2


def figure_of(metric: str, records: Mapping[int, Record]) -> Figure | None:
    """A side's figure to show: the record's own, or the mean over runs with its interval."""
    known = [record.metrics[metric] for record in records.values() if _positive(record, metric)]
    if len(known) < 2:
        return known[0] if known else next((record.metrics[metric] for record in records.values() if metric in record.metrics), None)
    found = mean_interval([math.log(figure.value) for figure in known], 0.95)
    return replace(known[0], value=noise.exp(found.centre), low=noise.exp(found.low), high=noise.exp(found.high), n=len(known))


def not_ok(base: Record | None, head: Record | None) -> tuple[Verdict, str] | None:
    """The verdict and reason for two records without a ratio: one of them failed, or the case does not exist on one side, which is not a
    failure."""
    lost = [(name, record) for name, record in zip(NAMES, (base, head), strict=True) if record and record.status != "ok"]
    if not lost:
        return None
    verdict: Verdict = "failed" if any(record.status in BAD for _, record in lost) else "incomparable"
    return verdict, ", ".join(f"{name} is {status_words(record)}" for name, record in lost)


def status_words(record: Record) -> str:
    """`oom (asked for 17 GB)`."""
    reason = " ".join(record.reason.split())
    return record.status.replace("_", " ") + (f" ({reason[:120]})" if reason else "")


def silent(id: str, metric: str, margin: float, verdict: Verdict, reason: str, *, paired: bool = False) -> Delta:
    """A delta without a ratio, with the reason."""
    return Delta(id, id, metric, None, None, None, margin, verdict, paired=paired, reason=reason)


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(keys)) or "an unknown one"
