"""Speedups over a baseline backend from stored rows: the original's four reports as data, and counts of what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from steelyard.dialects.ptxla.points import POINTS, TimePoint, geomean, percentile, speedup
from steelyard.dialects.ptxla.rows import BACKENDS, Row, RowTally, accelerator_fits, chooser, known_accelerator, printable
from steelyard.errors import NothingMeasured, SteelyardError, UsageError, unknown

TESTS = {"inference": "eval", "training": "train"}
REPORTS = ("latest", "latest_grouped", "histogram", "speedup")
PERCENTILES = (95, 50, 5)
NEEDED = ("accelerator_model", "batch_size", "dynamo", "test", "xla")
UNTIMED = "left out: no time, because it failed"
SKIPPED = "left out: no time, because it was skipped"
MOST_NAMES = 8

Tell = Callable[[str], None]
Devices = dict[tuple[str, str | None], bool]
"""Kinds and names of accelerators in the rows, and whether each is the requested one."""
Batches = dict[Any, TimePoint]
Models = dict[str, Batches]


@dataclass(frozen=True)
class ReportQuestion:
    """The options of a report; the first backend is the baseline of the others."""

    report: Literal["latest", "latest_grouped", "histogram", "speedup"] = "speedup"
    accelerator: str = "v100"
    test: str = "inference"
    metric: str = "exec"
    baseline: Literal["oldest", "latest"] = "oldest"
    backends: tuple[str, ...] = ("inductor", "openxla+dynamo")
    filters: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    tiers: tuple[int, ...] = ()
    exclude_tiers: tuple[int, ...] = ()
    paired: bool = False
    strict_exit: bool = False

    def __post_init__(self) -> None:
        for kind, name, names in (("report", self.report, REPORTS), ("test", self.test, TESTS), ("metric", self.metric, POINTS)):
            if name not in names:
                raise unknown(kind, name, names)
        for name in self.backends:
            if name not in BACKENDS:
                raise unknown("backend", name, BACKENDS)
        if not self.backends:
            raise UsageError("no backend to report on", do=f"name one of {', '.join(BACKENDS)}")
        if not self.accelerator.strip():
            raise UsageError("no accelerator named", do="name v100, a100, a6000, cpu, or a part of the device's name")

    @property
    def over(self) -> str:
        """The baseline of a speedup, such as `Oldest Inductor`."""
        return f"{self.baseline.capitalize()} {BACKENDS[self.backends[0]]}"

    @property
    def heading(self) -> str:
        """The title of a chart."""
        start = "Histogram of Speedup" if self.report == "histogram" else "Speedup"
        return f"{start} over {self.baseline.capitalize()} Benchmarked {BACKENDS[self.backends[0]]}"


@dataclass
class Occasion:
    """All points with one timestamp, by backend, and which models each backend was tried on."""

    points: dict[str, Models] = field(default_factory=dict)
    tried: dict[str, dict[str, bool]] = field(default_factory=dict)
    torches: dict[str, set[str]] = field(default_factory=dict)
    """The backends that ran on each version of torch, if the rows say it."""


Sessions = dict[float, Occasion]


@dataclass(frozen=True)
class ReportLine:
    """One backend in a report, or one percentile of it: a point or None at each place, and what `--paired` adds."""

    backend: str
    label: str
    points: tuple[TimePoint | None, ...]
    names: tuple[str | None, ...] = ()
    passed: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Report:
    """The content of a report, independent of its form; `places` are moments, workload numbers or model names."""

    question: ReportQuestion
    places: tuple[datetime | int | str, ...]
    lines: tuple[ReportLine, ...]


def report(rows: Iterable[Row], question: ReportQuestion, tally: RowTally, tell: Tell = lambda text: None) -> Report | None:
    """Return the report; None if the rows have points but none of this kind: the original then prints nothing."""
    devices: Devices = {}
    sessions = gather(rows, question, tally, devices)
    if not any(session.points for session in sessions.values()):
        raise _nothing(question, "no results found", why=_seen(devices, question))
    _tell_mixed(question, devices, tell)
    _tell_versions(sessions, tell)
    sessions = dict(sorted((moment, session) for moment, session in sessions.items() if session.points))
    found = _speedups(sessions, _baseline(sessions, question), question, tell)
    made: dict[str, Callable[..., Report | None]] = {
        "speedup": _speedup, "histogram": _histogram, "latest": _latest, "latest_grouped": _latest_grouped,
    }  # fmt: skip
    answer = made[question.report](sessions, found, question, tell)
    if answer is None:
        tell(f"cannot find data for accelerator {printable(question.accelerator)}")
    return answer


def _nothing(question: ReportQuestion, what: str, why: str = "") -> SteelyardError:
    """Return the error for no results; the original exits with 1 here."""
    return (NothingMeasured if question.strict_exit else SteelyardError)(what, why=why)


def _seen(devices: Devices, question: ReportQuestion) -> str:
    if any(devices.values()):
        return f"no row of {printable(question.accelerator, 40)} has a time of this test, metric and these models"
    return f"accelerators in the files: {_list([str(device) for _, device in devices]) or 'none'}"


def gather(rows: Iterable[Row], question: ReportQuestion, tally: RowTally, devices: Devices) -> Sessions:
    """Return points by timestamp, backend, model and batch size; of two rows for one point the last counts."""
    chosen = chooser(question.filters, question.excludes, question.tiers, question.exclude_tiers)
    wanted: dict[str, bool] = {}
    sessions: Sessions = {}
    for row in rows:
        experiment = row.experiment
        missing = next((key for key in NEEDED if key not in experiment), None)
        if missing:
            tally.add(f"left out: experiment.{missing} is missing", row.where)
            continue
        kind, device = experiment.get("accelerator"), experiment["accelerator_model"]
        if not _of_device(question, str(kind), device if isinstance(device, str) else None, devices, tally, row.where):
            continue
        name = row.name
        if name not in wanted:
            wanted[name] = chosen(name)
        if wanted[name] and experiment["test"] == TESTS[question.test]:
            _place(row, sessions, question, tally)
    return sessions


def _of_device(question: ReportQuestion, kind: str, device: str | None, seen: Devices, tally: RowTally, where: str) -> bool:
    key = (kind, device)
    if key not in seen:
        seen[key] = accelerator_fits(question.accelerator, kind, device)
    if not seen[key] and (device is None or known_accelerator(device) is None):
        asked = printable(question.accelerator, 40)
        named = f"its accelerator, {printable(device, 80)!r}," if device else "its accelerator has no name, so it"
        tally.add(f"left out: {named} is not {asked}", where)
    return seen[key]


def _tell_mixed(question: ReportQuestion, devices: Devices, tell: Tell) -> None:
    names = sorted({str(device) for (_, device), fits in devices.items() if fits})
    if len(names) > 1:
        tell(f"{printable(question.accelerator, 40)} matches {len(names)} names of accelerators, treated as one: {_list(names)}")


def _tell_versions(sessions: Sessions, tell: Tell) -> None:
    """Warn if backends ran on different versions of torch: they then differ in more than their stack."""
    mixed = [session.torches for session in sessions.values() if len(session.torches) > 1]
    if mixed:
        named = "; ".join(f"{printable(torch, 40)}: {', '.join(sorted(names))}" for torch, names in sorted(mixed[-1].items()))
        tell(f"backends ran on different versions of torch ({named}); 'as ptxla runner --env NAME' runs all in one environment")


def _place(row: Row, sessions: Sessions, question: ReportQuestion, tally: RowTally) -> None:
    """Put the row's point where it belongs, or count why it has none."""
    backend, moment, batch = row.backend, row.moment, row.experiment["batch_size"]
    if backend is None:
        pair = f"dynamo {row.experiment['dynamo']!r}, xla {row.experiment['xla']!r}"
        return tally.add(f"left out: no backend has {printable(pair, 80)}", row.where)
    if row.experiment.get("torch_xla2") is not None:
        return tally.add("left out: torch_xla2 is not a backend of these reports", row.where)
    if moment is None:
        return tally.add("left out: its timestamp is missing or invalid", row.where)
    if not (batch is None or isinstance(batch, (int, float, str))):
        return tally.add("left out: its batch size is not a number", row.where)
    session = sessions.get(moment) or sessions.setdefault(moment, Occasion())
    tried = session.tried.setdefault(backend, {})
    ours = row.others.get("steelyard")
    versions = ours.get("versions") if isinstance(ours, Mapping) else None
    if isinstance(versions, Mapping) and isinstance(versions.get("torch"), str):
        session.torches.setdefault(versions["torch"].partition("+")[0], set()).add(backend)
    point = _point(row, question, tally)
    if point is None:
        if row.error != "SKIP":
            tried.setdefault(row.name, False)
        return None
    tried[row.name] = True
    batches = session.points.setdefault(backend, {}).setdefault(row.name, {})
    if batch in batches:
        tally.add("repeated: the same timestamp, backend, model and batch size; the last row counts", row.where)
    batches[batch] = point
    return None


def _point(row: Row, question: ReportQuestion, tally: RowTally) -> TimePoint | None:
    """Return the row's time; a wrong answer counts, as in the original, unless pass rates are shown beside the means."""
    if "error" in row.metrics:
        tally.add(SKIPPED if row.metrics["error"] == "SKIP" else UNTIMED, row.where)
        return None
    times = row.metrics.get("total_time")
    if not isinstance(times, list):
        what = "missing" if "total_time" not in row.metrics else "null" if times is None else "not a list"
        tally.add(f"left out: metrics.total_time is {what}", row.where)
        return None
    found = POINTS[question.metric](times)
    if isinstance(found, str):
        tally.add(f"left out: {found}", row.where)
        return None
    if row.verification_code == "FAIL":
        tally.add(f"{'left out' if question.paired else 'counted'}: its answer failed verification", row.where)
        return None if question.paired else found
    return found


def _baseline(sessions: Sessions, question: ReportQuestion) -> Models:
    """Return the baseline times: per model and batch size the oldest, or only those of the newest timestamp."""
    first, moments = question.backends[0], list(sessions)
    found: Models = {}
    if question.baseline == "latest":
        newest = sessions[moments[-1]].points
        if first not in newest:
            raise _nothing(question, f"no {first} results in the latest timestamp {moments[-1]}", why="it is the baseline backend")
        return newest[first]
    for moment in moments:
        for name, batches in sessions[moment].points.get(first, {}).items():
            found[name] = {**batches, **found.get(name, {})}
    return found


Speedups = dict[float, dict[str, dict[str, TimePoint]]]


def _speedups(sessions: Sessions, baseline: Models, question: ReportQuestion, tell: Tell) -> Speedups:
    """Return speedups by timestamp, backend and model; several batch sizes of a model are one figure."""
    found: Speedups = {}
    alone: dict[tuple[str, str], None] = {}
    for moment, session in sessions.items():
        listed = {backend: session.points[backend] for backend in question.backends if backend in session.points}
        common = _common(listed.values(), baseline) if question.paired else None
        found[moment] = {}
        for backend, models in listed.items():
            kept: dict[str, TimePoint] = {}
            for name, batches in models.items():
                against = baseline.get(name, {})
                pairs = [
                    speedup(point, against[batch]) for batch, point in batches.items()
                    if batch in against and (common is None or (name, batch) in common)
                ]  # fmt: skip
                if pairs:
                    kept[name] = geomean(pairs)
                elif common is None:
                    alone[backend, f"{name} (its batch sizes)" if against else name] = None
            if kept:
                found[moment][backend] = kept
    _tell_alone(alone, question, tell)
    return found


def _common(held: Iterable[Models], baseline: Models) -> set[tuple[str, Any]]:
    sides = [{(name, batch) for name, batches in models.items() for batch in batches} for models in (*held, baseline)]
    return set.intersection(*sides)


def _tell_alone(alone: Iterable[tuple[str, str]], question: ReportQuestion, tell: Tell) -> None:
    by_backend: dict[str, list[str]] = {}
    for backend, name in alone:
        by_backend.setdefault(backend, []).append(name)
    for backend, names in by_backend.items():
        tell(f"{len(names)} of {backend} not shown, because the baseline ({question.backends[0]}) has no such time: {_list(names)}")


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name, 60) for name in sorted(names)[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def moment_of(seconds: float) -> datetime:
    """Convert a timestamp to a datetime in UTC without a time zone, as the original prints it."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _speedup(sessions: Sessions, found: Speedups, question: ReportQuestion, tell: Tell) -> Report:
    """The geometric mean of each backend over time."""
    moments = [moment for moment in sessions if found[moment]]
    lines = []
    for backend in question.backends:
        points = tuple(geomean(list(held.values())) if (held := found[moment].get(backend)) else None for moment in moments)
        lines.append(ReportLine(backend, BACKENDS[backend], points, passed=_passed(sessions, moments, backend)))
    _tell_unequal(found, moments, question, tell)
    return Report(question, tuple(map(moment_of, moments)), tuple(lines))


def _histogram(sessions: Sessions, found: Speedups, question: ReportQuestion, tell: Tell) -> Report:
    """Percentiles of each backend over time, at the moments of the first backend."""
    moments = [moment for moment in sessions if question.backends[0] in found[moment]]
    lines = []
    for backend in question.backends:
        held = [[point.value for point in found[moment].get(backend, {}).values()] for moment in moments]
        for share in PERCENTILES:
            points = tuple(TimePoint(percentile(values, share), n=len(values)) if values else None for values in held)
            lines.append(ReportLine(backend, f"{BACKENDS[backend]} p{share}", points, passed=_passed(sessions, moments, backend)))
    _tell_unequal(found, moments, question, tell)
    return Report(question, tuple(map(moment_of, moments)), tuple(lines))


def _latest(sessions: Sessions, found: Speedups, question: ReportQuestion, tell: Tell) -> Report | None:
    """Every model of each backend's newest timestamp, slowest first."""
    newest = {backend: next((moment for moment in reversed(sessions) if backend in found[moment]), None) for backend in question.backends}
    held = {moment for moment in newest.values() if moment is not None}
    if not held:
        return None
    if len(held) > 1:
        said = [f"{backend} {moment_of(moment)}" for backend, moment in newest.items() if moment is not None]
        tell(f"the newest results are not all from one time: {', '.join(said)}")
    ordered = {backend: _ascending(found[moment][backend]) if moment is not None else [] for backend, moment in newest.items()}
    most = max(map(len, ordered.values()))
    lines = []
    for backend in question.backends:
        pad = [None] * (most - len(ordered[backend]))
        points, names = [point for _, point in ordered[backend]], [name for name, _ in ordered[backend]]
        lines.append(ReportLine(backend, BACKENDS[backend], (*points, *pad), (*names, *pad)))
    return Report(question, tuple(range(most)), tuple(lines))


def _ascending(models: Mapping[str, TimePoint]) -> list[tuple[str, TimePoint]]:
    return sorted(models.items(), key=lambda item: (item[1].value, item[1].std, item[0]))


def _latest_grouped(sessions: Sessions, found: Speedups, question: ReportQuestion, tell: Tell) -> Report | None:
    """All backends beside each other for every model of the newest timestamp, and their geometric means."""
    moment = list(sessions)[-1]
    held = found[moment]
    names = sorted({name: None for backend in question.backends for name in held.get(backend, {})}, key=str.casefold)
    if not names:
        return None
    lines = []
    for backend in question.backends:
        models = held.get(backend, {})
        points = (*(models.get(name) for name in names), geomean(list(models.values())) if models else None)
        passed = (*([None] * len(names)), *_passed(sessions, [moment], backend))
        lines.append(ReportLine(backend, BACKENDS[backend], points, passed=passed))
    _tell_unequal(found, [moment], question, tell)
    return Report(question, (*names, "GEOMEAN"), tuple(lines))


def _passed(sessions: Sessions, moments: Iterable[float], backend: str) -> tuple[str | None, ...]:
    """`41/44`: how many of the models that were tried have a time; skipped ones were not tried."""
    tried = [sessions[moment].tried.get(backend, {}) for moment in moments]
    return tuple(f"{sum(models.values())}/{len(models)}" if models else None for models in tried)


def _tell_unequal(found: Speedups, moments: Sequence[float], question: ReportQuestion, tell: Tell) -> None:
    """Warn if the newest means are over different models."""
    if question.paired or not moments:
        return
    sets = {backend: set(models) for backend, models in found[moments[-1]].items()}
    if len(set(map(frozenset, sets.values()))) > 1:
        said = ", ".join(f"{backend} {len(names)}" for backend, names in sets.items())
        tell(f"at {moment_of(moments[-1])} the backends have different models ({said}); --paired takes only those that all have")
