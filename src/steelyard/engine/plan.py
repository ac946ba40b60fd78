"""Turns an experiment into a list of jobs: every name is checked and every case completed before anything is timed."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from steelyard import registry
from steelyard.engine import envs, modules, names, pairing, profilers
from steelyard.engine.filters import Filters, patient
from steelyard.engine.messages import Sources
from steelyard.engine.names import errors_at, fits, points, select, settle
from steelyard.engine.pairing import CasePair
from steelyard.engine.place import Place
from steelyard.engine.sides import FLAGS, MATCHED, TWO_BACKENDS, BaseSide, base_of
from steelyard.errors import NothingMeasured, UsageError
from steelyard.measuring import rules
from steelyard.model.case import IDENTITY, Case, parse_base
from steelyard.model.experiment import PASSES, Experiment, Matrix, ResultRow, Rule, Settings, UserScript
from steelyard.model.programs import PROGRAM, words_of
from steelyard.registry import Catalogue

Entries = tuple[tuple[str, str], ...]
MOST_CASES = 100_000
SCRIPT = "script"


@dataclass(frozen=True)
class Job:
    """One case to measure, the case to compare it with, and the worker it shares with others; `compiles` is about its own variants.

    `side` is where its base runs if that is not the same worker; if the whole plan has a side, `vs` is the same case there.
    `label` is the case's name in a file, and `origin` its place there; `rule` is its verification rule, if it has its own.
    `weight` is how often it is called in the step that it was taken from.
    """

    case: Case
    vs: Case | None
    place: Place
    unit: str
    fresh: bool
    compiles: bool = False
    label: str = ""
    origin: str = ""
    side: BaseSide | None = None
    rule: str = ""
    weight: float = 0.0

    @property
    def scale(self) -> tuple[Any, ...]:
        """What cases must share to be compared together."""
        return (self.case if self.side else self.vs or self.case, self.unit, self.place)


@dataclass(frozen=True)
class Dropped:
    """A case that a rule left out, and why; cases left out by the kind `deny` are recorded as skipped."""

    case: Case
    rule: Rule
    kind: Literal["exclude", "deny", "filter", "partition"] = "exclude"


@dataclass(frozen=True)
class Plan:
    """Everything that will run, in order, and what was left out; `other` is the side that the bases run on, if not this one.

    `part` says which of several parts this is, if it is one; `env` is the environment named for all cases; `idle` are rules that match
    no case at all, such as a misspelt one; `sources` are the user's own files that it uses, by hash, as far as they are known before
    anything runs.

    `pairs` are further comparisons besides those of the jobs with their bases: a job each, whose case and base other jobs measure,
    labelled by the first row that names it. `rows` are the rows with all their cases measured. `suite` is how many comparisons the
    whole run makes, if this is only one machine's part of it. `on` names the farm whose hosts measure, in place of this machine.
    """

    experiment: Experiment
    jobs: tuple[Job, ...]
    dropped: tuple[Dropped, ...]
    entries: Entries = ()
    other: BaseSide | None = None
    part: str = ""
    env: str = ""
    idle: tuple[Rule, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[Job, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    suite: int | None = None
    on: str = ""

    @property
    def settings(self) -> Settings:
        """How each case is measured."""
        return self.experiment.settings

    @property
    def denied(self) -> tuple[Dropped, ...]:
        """The cases that are recorded as skipped instead of measured."""
        return tuple(item for item in self.dropped if item.kind == "deny")

    def sources_of(self, job: Job) -> Sources:
        """What a worker must load for a job."""
        return Sources(tuple(self.experiment.files), self.entries, job.place.paths)

    @functools.cached_property
    def bases(self) -> frozenset[Case]:
        """The cases that are only bases, not compared with anything themselves."""
        weighed = {job.case for job in (*self.jobs, *self.pairs) if job.vs}
        return frozenset(job.vs for job in (*self.jobs, *self.pairs) if job.vs and job.vs not in weighed)

    @property
    def comparisons(self) -> int:
        """How many comparisons are to be made."""
        return self.suite if self.suite is not None else sum(job.vs is not None for job in self.jobs) + len(self.pairs)

    def fingerprint(self, machine_key: str, machine: Mapping[str, Any] | None = None) -> str:
        """A hash of what must be equal for an unfinished run to be continued: cases, settings, sources, machine, packages and commit."""
        files = [*self.experiment.files, *([self.experiment.script.file] if self.experiment.script else [])]
        sources = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files]
        cases = [(job.case.id, job.vs and job.vs.id, job.place.python, job.place.device_index) for job in self.jobs]
        shared = {name: (machine or {}).get(name) for name in ("packages", "python", "git")}
        other = [self.other.label, *self.other.identity] if self.other else None
        denied = [[item.case.id for item in self.denied]] if self.denied else []
        homes = {python: dict(held) for python in sorted({job.place.python for job in self.jobs}) if (held := envs.contents(python))}
        known = [cases, asdict(self.settings), sources, machine_key, shared, other, *denied, *([homes] if homes else [])]
        known += [dict(self.sources)] if self.sources else []
        known += [[(job.case.id, job.vs and job.vs.id) for job in self.pairs]] if self.pairs else []
        text = json.dumps(known, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def expand(
    experiment: Experiment,
    catalogue: Catalogue,
    *,
    place: Place | None = None,
    entries: Entries = (),
    against: Mapping[Case, Case] | None = None,
    other: BaseSide | None = None,
    filters: Filters | None = None,
) -> Plan:
    """Turn matrices, included cases, filters and rules into jobs; `against` has the base of each, in place of a variant."""
    if experiment.script:
        return _scripted(experiment, experiment.script, place or Place(), entries)
    names.refuse(experiment, catalogue)
    fixed = experiment.settings.fixed
    if fixed and fixed.repeat_time is None and (experiment.settings.vs or against or other):
        raise UsageError(
            "a comparison needs alternating blocks, not fixed numbers of calls", do="compare two runs without --vs, or leave out fixed"
        )
    for name in {experiment.settings.rule or "", *(matrix.rule for matrix in experiment.matrix)} - {""}:
        rules.check(name)
    check_size(experiment, catalogue)
    cases: dict[Case, None] = {}
    named: dict[Case, Matrix] = {}
    misfits: dict[Case, Rule] = {}
    for matrix in experiment.matrix:
        with errors_at(matrix.origin):
            found = list(_matrix_cases(matrix, catalogue))
            cases |= dict.fromkeys(found)
        misfits |= {case: rule for case in found if len(matrix.backend) > 1 and (rule := _misfit(case, matrix, catalogue))}
        for case in found if matrix.origin or matrix.label or matrix.rule or matrix.weight else ():
            named[case] = _also(named.get(case), matrix)
    for item in experiment.include:
        case = settle(Case.parse(item) if isinstance(item, str) else item, catalogue)
        cases.setdefault(case)
        misfits.pop(case, None)
    rows = pairing.rows_of(experiment, catalogue)
    pairs = pairing.pairs_of(experiment, rows, cases, catalogue)
    for case in [*(case for row in rows for case in row.cases), *(case for pair in pairs for case in reversed(pair))]:
        cases.setdefault(case)
        misfits.pop(case, None)
    chosen = filters or Filters()
    with patient(chosen):
        kept, dropped = _sort_out(cases, misfits, experiment, catalogue, chosen)
        denied = {item.case for item in dropped if item.kind == "deny"}
        if not kept and not denied:
            raise _nothing(list(cases), dropped, chosen)
    if other is not None and (housed := next((case for case in kept if case.env), None)):
        raise UsageError(
            f"{housed} cannot be compared with {other.label}", why="it has its own environment",
            do="leave env out of it, and name the environment of all cases with --env",
        )  # fmt: skip
    names.refuse_values(kept, {case: matrix.origin for case, matrix in named.items()}, catalogue)
    names.refuse_reference(kept, experiment.settings)
    for tool in profilers.LOOKS:
        if getattr(experiment.settings, tool):
            profilers.check(tool, [case.device for case in kept])
    left = set(kept)
    wanted = {pair: row for pair, row in pairs.items() if left.issuperset(pair)}
    jobs, weighed = _jobs(kept, named, wanted, denied, experiment, catalogue, place or Place(), against, other)
    sources = dict(catalogue.sources)
    for job in jobs:
        sources |= modules.programs(words_of(dict(job.case.params)), Path.cwd()) if job.case.backend == PROGRAM else {}
    return Plan(
        experiment, tuple(jobs), tuple(dropped), entries, other, idle=_idle(experiment, cases, catalogue), sources=sources,
        pairs=tuple(weighed), rows=pairing.whole_rows(rows, left),
    )  # fmt: skip


def _scripted(experiment: Experiment, script: UserScript, place: Place, entries: Entries) -> Plan:
    """Plan one job for a user's script, which itself decides what is measured; if the script fails, the case `script` has its failure."""
    asked = experiment.settings
    planned = experiment.matrix or experiment.include or experiment.pairs or experiment.rows or asked.vs
    beside = [name for name in PASSES if getattr(asked, name)]
    if planned or beside:
        why = "its own code decides what is measured"
        raise UsageError(f"a script cannot be run with {beside[0] if beside else 'cases'} beside it", why=why)
    if not Path(script.file).is_file():
        raise UsageError("there is no such file", do="name the Python file to run", where=script.file)
    params = (("argv", list(script.argv)), ("file", Path(script.file).name))
    case = Case(SCRIPT, params, script.backend, device=script.device, threads=script.threads)
    job = Job(case, None, at_home(case, envs.place_for(script.backend, place)), case.id, fresh=True)
    return Plan(experiment, (job,), (), entries, sources=modules.programs([script.file], Path.cwd()))


def _idle(experiment: Experiment, cases: Iterable[Case], catalogue: Catalogue) -> tuple[Rule, ...]:
    """Rules that match no case, before other rules and filters are applied."""
    left = [*experiment.exclude, *experiment.deny]
    for case in cases:
        if not left:
            break
        left = [rule for rule in left if not fits(rule, case, catalogue)]
    return tuple(left)


def _misfit(case: Case, matrix: Matrix, catalogue: Catalogue) -> Rule | None:
    """Why a case is left out if there are several backends: its variant or program is for others; with one backend it is unsupported."""
    for step in case.chain:
        variant = catalogue.variant(case.workload, step.name)
        belongs = variant.get("backends", ())
        if belongs and case.backend not in belongs and set(belongs) & set(matrix.backend):
            return Rule({"variant": case.variant, "backend": case.backend}, f"variant {step.name} works with {', '.join(belongs)}")
    workload = registry.built_ins().workloads.get(case.workload) if catalogue.workloads[case.workload].get("opens") else None
    if workload is not None and workload.suits is not None:
        belongs = workload.suits(dict(case.params))
        if case.backend not in belongs and set(belongs) & set(matrix.backend):
            return Rule({"backend": case.backend}, f"programs of other kinds: {case.backend} runs none of them")
    return None


def _sort_out(
    cases: Iterable[Case], misfits: Mapping[Case, Rule], experiment: Experiment, catalogue: Catalogue, filters: Filters
) -> tuple[list[Case], list[Dropped]]:
    """Split the cases into kept and dropped ones; a case that filters or `exclude` leave out cannot be denied as well."""
    kept, dropped = [], []
    for case in cases:
        tags = catalogue.workloads[case.workload].get("tags", ())
        excluding = misfits.get(case) or next((rule for rule in experiment.exclude if fits(rule, case, catalogue)), None)
        denying = next((rule for rule in experiment.deny if fits(rule, case, catalogue)), None)
        if (filtering := filters.against(case, tags)) is not None:
            dropped.append(Dropped(case, filtering, "filter"))
        elif excluding:
            dropped.append(Dropped(case, excluding, "exclude"))
        elif denying:
            dropped.append(Dropped(case, denying, "deny"))
        else:
            kept.append(case)
    return kept, dropped


def _nothing(cases: Sequence[Case], dropped: Sequence[Dropped], filters: Filters) -> NothingMeasured:
    if not dropped:
        return NothingMeasured("nothing to measure", why="the selection is empty")
    left = [item for item in dropped if item.kind == "filter"]
    by = "filters" if len(left) == len(dropped) else "filters and exclude rules" if left else "exclude rules"
    advice = filters.advice(cases) if left else ""
    count = "the only case was" if len(dropped) == 1 else f"{len(dropped)} cases were all"
    return NothingMeasured("nothing to measure", why=f"{count} dropped by {by}", do=advice)


def _also(known: Matrix | None, matrix: Matrix) -> Matrix:
    """Combine matrices for a case that a file names more than once: it has all these names and its first place."""
    return matrix if known is None else replace(known, label=f"{known.label} {matrix.label}".strip())


def check_size(experiment: Experiment, catalogue: Catalogue) -> None:
    """Refuse an experiment with more cases than a run could finish, by counting them, because expanding it would use up the memory."""
    total = len(experiment.include) + sum(len(row.cases) for row in experiment.rows)
    for matrix in experiment.matrix:
        with errors_at(matrix.origin):
            names = dict.fromkeys(name for pattern in matrix.workload for name in select(pattern, catalogue))
            total += sum(_product(matrix, catalogue.workloads[name].get("axes", {})) for name in names)
        if total > MOST_CASES:
            raise UsageError(
                f"{total:,} cases are too many for one run".replace(",", " "),
                why=f"it may have {MOST_CASES:,}; every value of an axis multiplies them".replace(",", " "),
                do="name fewer values, or share them among several runs", where=matrix.origin,
            )  # fmt: skip


def _product(matrix: Matrix, axes: Mapping[str, Sequence[Any]]) -> int:
    points = math.prod(len(matrix.axes.get(key, values)) for key, values in axes.items())
    sizes = len(matrix.axes.get("size", ())) if "size" not in axes else 0
    stacks = (matrix.backend or ("",), matrix.variant or ("",))
    how = (matrix.device, matrix.mode, matrix.threads, matrix.ranks, matrix.env, matrix.flags, *stacks)
    return points * max(sizes, 1) * math.prod(map(len, how))


def _matrix_cases(matrix: Matrix, catalogue: Catalogue) -> Iterator[Case]:
    names = [name for pattern in matrix.workload for name in select(pattern, catalogue)]
    for name in dict.fromkeys(names):
        info = catalogue.workloads[name]
        found = points(matrix.axes, info)
        backends = matrix.backend or tuple(info["backends"][:1])
        usual = {backend: (registry.about_backend(backend).usual or IDENTITY,) for backend in backends}
        stacks = [(backend, word) for backend in backends for word in matrix.variant or usual[backend]]
        how = itertools.product(matrix.device, matrix.mode, matrix.threads, matrix.ranks, matrix.env, matrix.flags, stacks)
        for values, (device, mode, threads, ranks, env, flags, (backend, variant)) in itertools.product(found, list(how)):
            case = Case(name, tuple(values.items()), backend, variant, mode, device, threads, ranks, tuple(flags.items()), env)
            yield settle(case, catalogue)


def _jobs(
    cases: Sequence[Case],
    named: Mapping[Case, Matrix],
    pairs: Mapping[CasePair, str],
    denied: Collection[Case],
    experiment: Experiment,
    catalogue: Catalogue,
    place: Place,
    against: Mapping[Case, Case] | None,
    other: BaseSide | None,
) -> tuple[list[Job], list[Job]]:
    """Jobs for every case and for each base, and one for every further pair that is compared.

    A base that is denied does not run, and its cases are not compared.
    """
    settings = experiment.settings
    wanted: dict[Case, Case | None] = {case: case for case in cases} if other else {}
    vs = None if other else settings.vs
    told = against or {}
    bases = {case: told.get(case) if vs is None else settle(base_of(case, vs), catalogue) for case in (() if other else cases)}
    if vs is not None and bases and all(base == case for case, base in bases.items()):
        raise nothing_to_compare(vs, list(bases), catalogue)
    for case, base in bases.items():
        base = None if base in denied else base
        if base is not None:
            wanted.setdefault(base, None)
        wanted[case] = base if case != base else None
    homes = sorted({(case.env, case.backend) for case in wanted})
    places = {(env, backend): envs.place(env, place) if env else envs.place_for(backend, place) for env, backend in homes}

    known: dict[tuple[Any, ...], Place] = {}

    def home(case: Case) -> Place:
        key = (case.env, case.backend, case.device, case.threads, case.flags)
        if key not in known:
            known[key] = at_home(case, places[case.env, case.backend])
        return known[key]

    def made(case: Case, base: Case | None, label: str = "", origin: str = "", rule: str = "", weight: float = 0.0) -> Job:
        side = other if base is not None else None
        if base is not None and base.backend != case.backend and not _beside_numpy(case, base, places):
            side = _elsewhere(f"{base.backend}/{base.variant}", base, places[base.env, base.backend], experiment.files, catalogue)
        elif base is not None and side is None and base.flags != case.flags:
            side = replace(_elsewhere(vs or "", base, places[base.env, base.backend], experiment.files, catalogue), layout=MATCHED)
        beside = base is not None and base.backend == case.backend and _compiles(base, catalogue)
        fresh = beside or _needs_fresh(case, catalogue)
        unit = {"case": case.id, "none": case.backend}.get(settings.isolate, f"{case.workload}@{case.backend}")
        return Job(case, base, home(case), unit, fresh, _compiles(case, catalogue), label, origin, side, rule, weight)

    written = {case: (matrix.label, matrix.origin, matrix.rule, matrix.weight) for case, matrix in named.items()}
    jobs = [made(case, base, *written.get(case, ())) for case, base in wanted.items()]
    weighed = [made(head, base, row) for (head, base), row in pairs.items()]
    fresh = {(job.unit, job.place) for job in (*jobs, *weighed) if job.fresh}
    settled = [_fresh(job, settings) if (job.unit, job.place) in fresh else job for job in (*jobs, *weighed)]
    return settled[: len(jobs)], settled[len(jobs) :]


def _fresh(job: Job, settings: Settings) -> Job:
    """A job whose worker needs a fresh interpreter, which takes seconds to start: it shares one with other jobs of its device.

    With a limit on memory, which is for one workload, it has its own.
    """
    shared = settings.isolate == "shared" and settings.memory is None
    return replace(job, fresh=True, unit=f"{job.case.backend}@{job.case.device}" if shared else job.unit)


def nothing_to_compare(vs: str, cases: Sequence[Case], catalogue: Catalogue) -> UsageError:
    """The error for a base without anything to compare with it; measuring only the base would look like an answer."""
    why = "the only case is the base" if len(cases) == 1 else f"all {len(cases)} cases are bases"
    if vs.startswith(FLAGS):
        return UsageError(f"nothing to compare with {vs}", why=f"{why}: its flags are the same", do="name other flags, or give --flag")
    own = list(dict.fromkeys(name for case in cases for name in catalogue.workloads[case.workload]["variants"]))
    variant = parse_base(vs)[1]
    others = ",".join([variant, *([name for name in own if name != variant] or ["compile"])])
    backends = list(dict.fromkeys(case.backend for case in cases))
    one_base = f", or {backends[0]}/{variant} for one base over backends" if len(backends) > 1 and vs == variant else ""
    return UsageError(f"nothing to compare with {vs}", why=why, do=f"name what is compared with it: -V {others}{one_base}")


def _beside_numpy(case: Case, base: Case, places: Mapping[tuple[str, str], Place]) -> bool:
    """Whether a base on numpy runs in the head's process: every worker has numpy, and on one thread neither disturbs the other."""
    home, other = places[case.env, case.backend], places[base.env, base.backend]
    alone = case.device == base.device == "cpu" and case.threads == base.threads == case.ranks == 1 and case.flags == base.flags
    about = registry.about_backend(case.backend)
    real = about.forks and not about.virtual
    return base.backend == "numpy" and alone and home.python == other.python and real


def _elsewhere(label: str, base: Case, place: Place, files: tuple[str, ...], catalogue: Catalogue) -> BaseSide:
    """The side of a base on another backend, or with other variables."""
    return BaseSide(label, place, files, TWO_BACKENDS, fresh=_needs_fresh(base, catalogue))


def _compiles(case: Case, catalogue: Catalogue) -> bool:
    compiles = registry.about_backend(case.backend).compiles
    return compiles or any(catalogue.variant(case.workload, step.name).get("fresh", True) for step in case.chain)


def _needs_fresh(case: Case, catalogue: Catalogue) -> bool:
    """Whether a case may not run in a forked worker."""
    return _compiles(case, catalogue) or case.device != "cpu" or not registry.about_backend(case.backend).forks


def at_home(case: Case, place: Place) -> Place:
    """A place with a case's threads and variables."""
    flags = envs.variables(case.backend, case.device, case.threads) | {key: str(value) for key, value in case.flags}
    return replace(place, threads=case.threads, flags=tuple(flags.items()), programs=case.backend == "command")
