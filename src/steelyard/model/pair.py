"""Pair and Delta: two arms measured interleaved, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from steelyard.model import effects
from steelyard.model.record import SCHEMA, Figure, Series
from steelyard.model.units import duration, percent, plain

Verdict = Literal["slower", "faster", "same", "unclear", "missing", "failed", "incomparable"]
MARGIN = 0.02
ALPHA = 0.01
MOST_DISCARDED = 0.5
UNBOUNDED = "its interval is unbounded"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: which case, in which environment, from which source.

    `time` is the time of its own interleaved blocks, with a 95 % interval over rebuilds or processes; None in runs by older versions.
    """

    id: str
    environment: str = ""
    source: str = ""
    commit: str = ""
    dirty: bool = False
    time: Figure | None = None


@dataclass(frozen=True)
class PairPart:
    """One part of both arms' runs, such as the time to the first token: its ratio with interval, and its value in each arm."""

    ratio: float
    low: float
    high: float
    p: float | None = None
    base: Figure | None = None
    head: Figure | None = None


@dataclass(frozen=True)
class Pair:
    """Two arms measured interleaved; `ratio` is head time over base time, with its interval over rebuilds and processes.

    `centres` has one log-ratio per rebuild, or per process if there are several. `floor` is the spread (SD of the log-ratio) between
    the base and the base built again. `p` is the probability of a difference this large if there is none: the larger one of Student's
    and the randomisation test, or that of the evidence if it is smaller, times two for the choice. `evidence` is the e-value, which stays
    valid however often it is looked at. `clock` is wall time, thread CPU time, or how a device was timed. `stopped_by` says what ended the
    measurement: the evidence, its budget, or a settled margin in the extension. `looks` is how often the result was looked at; each look
    has a share of the allowed error. `needed_s` is how many more seconds would settle the margin. `parts` are times within the runs, by
    name, if runs report them; only the whole time decides how long is measured.
    """

    base: Arm
    head: Arm
    ratio: float
    low: float
    high: float
    confidence: float
    rebuilds: int
    quads: int
    coin_seed: int
    calls: tuple[int, int]
    centres: list[float] = field(default_factory=list)
    discarded: dict[str, float] = field(default_factory=dict)
    schedule: str = "quads"
    processes: int = 1
    layout: str = ""
    clock: str = ""
    floor: float | None = None
    p: float | None = None
    evidence: float | None = None
    stopped_by: str = ""
    looks: int = 1
    measured_s: float = 0.0
    needed_s: float | None = None
    margin: float = MARGIN
    notes: list[str] = field(default_factory=list)
    parts: dict[str, PairPart] = field(default_factory=dict)
    samples: list[Series] = field(default_factory=list)
    schema: int = SCHEMA

    @property
    def facts(self) -> list[str]:
        """Phrases on how much was measured and how clear the result is."""
        found = [f"{self.rebuilds} rebuilds", f"{self.quads} rounds", plain(self.measured_s, "s", 2)]
        found += [f"p {self.p:.2g}"] if self.p is not None else []
        return found + ([f"noise floor {percent(self.floor)} a rebuild"] if self.floor else [])


@dataclass(frozen=True)
class Delta:
    """What changed from base to head; direction and materiality are separate questions.

    `disturbed` means that more than half of one arm's blocks were disturbed: the ratio is shown, but the verdict is unclear.
    """

    base: str
    head: str
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    margin: float
    verdict: Verdict
    paired: bool
    reason: str = ""
    p: float | None = None
    disturbed: bool = False

    @property
    def sound(self) -> bool:
        """Whether its ratio may be used in a mean and in the statement about all cases."""
        return bool(self.ratio) and self.verdict in effects.COMPARABLE and not self.disturbed

    @property
    def direction(self) -> int:
        """+1 when the interval is above one, -1 when it is below, 0 when it includes one."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 1 else -1 if self.high < 1 else 0

    @property
    def material(self) -> bool:
        """True when the whole interval lies beyond the margin."""
        return effects.beyond(self.low, self.high, self.margin)

    @property
    def settled(self) -> bool:
        """True when the margin is decided: the interval lies inside it or wholly beyond it."""
        return self.verdict == "same" or (self.verdict in ("slower", "faster") and self.material)

    @property
    def effect(self) -> str:
        """The verdict with its size and interval, as every table and page writes it."""
        return effects.effect(self.ratio, self.low, self.high, self.verdict, margin=self.margin, metric=self.metric, paired=self.paired)

    def __str__(self) -> str:
        """The verdict as a sentence, with its base and its reason."""
        than = "" if self.base == self.head else f" (against {self.base})"
        return f"{self.head}: {self.effect}{than}" + (f"; {self.reason}" if self.reason else "")


def judge(low: float, high: float, margin: float) -> Verdict:
    """The verdict of an interval: `same` within the margin, else its direction, or `unclear` if it includes one."""
    return "same" if effects.within(low, high, margin) else "slower" if low > 1 else "faster" if high < 1 else "unclear"


def weigh(pair: Pair, margin: float | None = None) -> Delta:
    """Turn a pair's interval into a verdict, by its own margin unless another is given; every table, page and gate uses this.

    A pair with too many disturbed blocks gets no verdict, and one with an unbounded interval gets no ratio.
    """
    margin = (pair.margin if 0 < pair.margin < 1 else MARGIN) if margin is None else margin
    base = pair.base.environment if pair.base.environment and pair.base.id == pair.head.id else pair.base.id
    if not effects.bounded(pair.ratio, pair.low, pair.high):
        return Delta(base, pair.head.id, "time", None, None, None, margin, "unclear", paired=True, reason=UNBOUNDED)
    verdict, reason = judge(pair.low, pair.high, margin), ""
    lost = max(pair.discarded.values(), default=0.0)
    disturbed = lost > MOST_DISCARDED
    if disturbed:
        verdict, reason = "unclear", f"{lost:.0%} of the blocks of one arm were disturbed"
    elif pair.needed_s and not (verdict == "same" or effects.beyond(pair.low, pair.high, margin)):
        reason = f"about {duration(pair.needed_s)} more would settle it"
    ends = (pair.ratio, pair.low, pair.high)
    return Delta(base, pair.head.id, "time", *ends, margin, verdict, paired=True, reason=reason, p=pair.p, disturbed=disturbed)


def weigh_part(pair: Pair, name: str, margin: float | None = None) -> Delta:
    """The verdict of one part of the runs, by the same margin and the same rules as for the whole."""
    part = pair.parts[name]
    base, head = replace(pair.base, time=part.base), replace(pair.head, time=part.head)
    own = replace(pair, base=base, head=head, ratio=part.ratio, low=part.low, high=part.high, p=part.p, needed_s=None)
    return replace(weigh(own, margin), metric=name)


def told_from_chance(deltas: Sequence[Delta]) -> list[Delta]:
    """The verdicts of a suite, corrected for the number of paired comparisons of each metric: differences that can be chance become
    unclear."""
    tested: dict[str, list[Delta]] = {}
    for delta in deltas:
        if delta.paired and delta.p is not None and not delta.disturbed:
            tested.setdefault(delta.metric, []).append(delta)
    kept: dict[int, bool] = {}
    for found in tested.values():
        kept |= zip(map(id, found), benjamini_hochberg([delta.p or 0.0 for delta in found]), strict=True)
    return [
        replace(delta, verdict="unclear", reason=f"among {len(tested[delta.metric])} comparisons a difference this clear can be chance")
        if delta.verdict in ("slower", "faster") and not kept.get(id(delta), True)
        else delta
        for delta in deltas
    ]


def benjamini_hochberg(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Which of many findings remain if at most a share alpha of them may be false (false discovery rate)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    last = max((rank for rank, index in enumerate(order, 1) if p_values[index] <= alpha * rank / len(order)), default=0)
    kept = set(order[:last])
    return [index in kept for index in range(len(p_values))]
