"""The typed report document, from which pages, spreadsheets and pictures are made, part by part.

Builders make these; `plain` turns them into JSON, with null for infinite and undefined numbers. A test checks every document
against them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from steelyard.analyze.matrix import Against, Passes, TableRow
from steelyard.analyze.sweep import Sweep
from steelyard.model.pair import Verdict
from steelyard.model.record import Status

FORMAT = "steelyard-report/1"
Real = float | None
Numbers = tuple[Real, Real, Real, int | None]
"""Value, both ends of its 95 % interval, and its number of samples."""
Scalar = str | int | float | bool | None
Tone = Literal["good", "bad", "mixed", "none"]


@dataclass(frozen=True)
class ReportBanner:
    """The answer: whether it is good news, and its sentences, also as one text."""

    tone: Tone
    text: str
    sentences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MachineCard:
    """A machine, with facts as pairs of label and text."""

    key: str
    name: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class RunEntry:
    """One run as pages list it; `href` leads to its own page in a site."""

    id: str
    created: str
    commit: str
    dirty: bool
    experiment: str
    machine: int
    command: str
    version: str
    sealed: bool
    counts: dict[str, int]
    missing: list[str]
    warnings: list[str]
    environment: dict[str, str]
    conditions: list[str] = field(default_factory=list)
    load: Real = None
    monitor: str = ""
    href: str | None = None


@dataclass(frozen=True)
class MetricEntry:
    """Unit, direction and label of a metric."""

    unit: str
    better: Literal["lower", "higher", "none"]
    label: str


@dataclass(frozen=True)
class ClockSeries:
    """A device's clock, by indices of the samples."""

    unit: str
    index: list[int]
    values: list[Real]


@dataclass(frozen=True)
class SampleEntry:
    """Raw times of a case per call; `index` has their positions if some are left out."""

    unit: str
    count: int
    index: list[int] | None
    time: list[Real]
    discarded: list[int] | None
    kept: bool
    clock: ClockSeries | None
    throttled: list[int] | None


@dataclass(frozen=True)
class RoofEntry:
    """A case under its roof: what it reached, what bounds it, and the peaks."""

    intensity: Real
    achieved: Real
    bandwidth: Real
    bound: str
    share: Real
    peak_compute: Real
    peak_bandwidth: Real
    dtype: str


@dataclass(frozen=True)
class CheckEntry:
    """How an answer was verified."""

    status: str
    against: str
    message: str
    max_abs: Real
    max_rel: Real
    rtol: Real
    atol: Real
    identical: bool
    checks: list[str]
    code: str
    figures: dict[str, Real]


@dataclass(frozen=True)
class AttachmentEntry:
    """A file kept with the run; `href` leads to its copy in a site."""

    kind: str
    path: str
    sha256: str
    href: str | None = None


@dataclass(frozen=True)
class ProgramEntry:
    """How a compiled program differs from its base's: group, name, count in base and in head."""

    name: str
    words: str
    changes: list[tuple[str, str, Real, Real]]


@dataclass(frozen=True)
class CaseEntry:
    """One case with all that is known about it; samples, roof and replay are added last."""

    id: str
    label: str
    run: int
    number: int
    status: Status
    reason: str
    workload: str
    params: dict[str, Scalar]
    backend: str
    variant: str
    mode: str
    device: str
    threads: int | None
    ranks: int
    env: str
    flags: dict[str, Scalar]
    metrics: dict[str, Numbers]
    noise: str
    other_load: Real
    verification: CheckEntry | None
    check: str
    environment: int
    differs: list[str] | None
    effective: dict[str, Scalar]
    attachments: list[AttachmentEntry]
    repeat: str
    samples: SampleEntry | None = None
    roof: RoofEntry | None = None
    traceback: list[str] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    machine_meanwhile: dict[str, str] | None = None
    programs: list[ProgramEntry] = field(default_factory=list)
    replay: dict[str, Any] | None = None


@dataclass(frozen=True)
class DeltaEntry:
    """One comparison: verdict, effect in words, ratio with its 99 % interval, both sides' own figures, and the ratio that
    each rebuild gave, in order."""

    case: str
    base: str
    metric: str
    ratio: Real
    low: Real
    high: Real
    margin: Real
    verdict: Verdict
    effect: str
    paired: bool
    reason: str
    p: Real
    before: Numbers | None
    after: Numbers | None
    rebuilds: list[Real] = field(default_factory=list)


@dataclass(frozen=True)
class BadEntry:
    """A case of either side that is wrong or failed."""

    case: str
    status: Status
    reason: str
    side: Literal["base", "head"]


@dataclass(frozen=True)
class ComparisonPart:
    """Every comparison of a page; `means` are ratio, count and both ends by metric."""

    base: str
    head: str
    paired: bool
    notes: list[str]
    means: dict[str, tuple[Real, int, Real, Real]]
    deltas: list[DeltaEntry]
    new: list[str]
    missing: list[str]
    bad: list[BadEntry]


@dataclass(frozen=True)
class MatrixCell:
    """One stack's result for one row."""

    case: str
    status: str
    time: Numbers | None


@dataclass(frozen=True)
class MatrixPart:
    """Workloads by stacks; `by_baseline` has the speedups over each baseline, `references` the columns of slow references."""

    baseline: str
    columns: list[str]
    rows: list[TableRow]
    cells: list[list[MatrixCell | None]]
    by_baseline: dict[str, Against]
    pass_rates: list[Passes]
    references: list[str]


@dataclass(frozen=True)
class ReportDocument:
    """The whole document. Parts without content are null; `commit_url` is the address of a commit, with {commit} in its place.

    Roofline, generation and history are tables described in their own modules and charts; `rows` are the rows of charts, by column.
    """

    format: Literal["steelyard-report/1"]
    title: str
    made: str
    version: str
    banner: ReportBanner
    warnings: list[str]
    machines: list[MachineCard]
    runs: list[RunEntry]
    metrics: dict[str, MetricEntry]
    environments: list[dict[str, str]]
    common: list[str]
    cases: list[CaseEntry]
    comparison: ComparisonPart | None
    matrix: MatrixPart | None
    sweep: list[Sweep] | None
    roofline: dict[str, Any] | None
    generation: dict[str, Any] | None
    history: dict[str, Any] | None
    rows: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    commit_url: str = ""
