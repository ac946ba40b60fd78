"""One run from request to sealed file: gather, expand, open the store, supervise, seal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard import codec, registry
from steelyard.analyze import foreseen
from steelyard.analyze.foreseen import Foreseen
from steelyard.codec.expectations import Expectation
from steelyard.engine import commands, envs, partition, plan, retry, roofs, run, selection, sides, waits
from steelyard.engine.consent import Consent, all_own
from steelyard.engine.describe import describe
from steelyard.engine.place import Place
from steelyard.engine.plan import Plan
from steelyard.engine.selection import Request
from steelyard.engine.sinks import Sink
from steelyard.errors import FAILED, NOTHING, UsageError, exit_code
from steelyard.machine import facts
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment
from steelyard.model.record import BAD, Record, Status, unweighed
from steelyard.store.index import Index
from steelyard.store.runs import Header, Run, RunWriter, Store, read_run
from steelyard.version import __version__

if TYPE_CHECKING:
    from steelyard.engine.farm.running import Farm


@dataclass(frozen=True)
class RunOutcome:
    """A finished run, its exit code, and how it compares with the expected failures; its file is read when needed."""

    path: Path
    ready: Plan
    expectations: Sequence[Expectation] = ()

    @functools.cached_property
    def run(self) -> Run:
        """The run as it is on the disk."""
        return read_run(self.path)

    @property
    def code(self) -> int:
        """The exit code."""
        mistaken = bool(self.ready.experiment.mistakes) or bool(self.uncompared)
        return judge(self.run, mistaken=mistaken, expectations=self.expectations)

    @property
    def uncompared(self) -> list[str]:
        """The ok cases that should have been compared with a base but were not, including those kept from an earlier part of the run."""
        made, fine = {pair.head.id for pair in self.run.pairs}, {record.id for record in self.run.records if record.status == "ok"}
        return [job.case.id for job in self.ready.jobs if job.vs and job.case.id in fine - made]

    @property
    def foreseen(self) -> Foreseen:
        """The expected failures that occurred and those that did not."""
        return foreseen.hold(self.run.records, self.expectations, [item.case for item in self.ready.dropped])


def prepare(request: Request, store: Store) -> Plan:
    """Check everything and return the plan; nothing is timed."""
    place = replace(envs.place(request.env) if request.env else Place(), device_index=request.device_index)
    experiment, catalogue, entries = selection.gather(request, place)
    consent = Consent(store, request.trust)
    consent.check_names()
    experiment = replace(
        experiment, include=tuple(_recalled(item, consent) for item in experiment.include),
        pairs=tuple((_recalled(head, consent), _recalled(base, consent)) for head, base in experiment.pairs),
    )  # fmt: skip
    against = commands.bases(request)
    if against and sides.is_side(experiment.settings.vs):
        raise UsageError(
            f"several programs are compared with each other, so {experiment.settings.vs} cannot be the base", do="name one program"
        )
    place = sides.here(experiment.settings.vs, place, experiment.files)
    other = _other_side(experiment, place, entries, f"env:{request.env}" if request.env else "")
    part = partition.parse_part(request.part) if request.part else None
    whole = plan.expand(experiment, catalogue, place=place, entries=entries, against=against, other=other, filters=request.filters)
    whole = replace(whole, env=request.env or "", on=request.on)
    if farm := _farm(whole):
        farm.check()
    return partition.take(whole, part, store) if part else whole


def _other_side(experiment: Experiment, place: Place, entries: plan.Entries, facing: str) -> sides.BaseSide | None:
    """Return the side that the bases run on, if not ours; files that cannot be loaded there are an error before anything is timed."""
    other = sides.there(experiment.settings.vs, place, experiment.files)
    if other is None:
        return None
    if other.files or entries:
        try:
            describe(other.place, other.files, entries)
        except UsageError as error:
            raise UsageError(f"{other.label}: {error.what}", why=error.why, do=error.do, where=error.where) from error
    return replace(other, facing=facing)


def _recalled(item: str | Case, consent: Consent) -> str | Case:
    """Return a case in full: one with parameters known only by digest is looked up in saved runs, the user's own or trusted by name.

    A word of a pair that is not a case id is returned unchanged.
    """
    if isinstance(item, str) and ":" not in item:
        return item
    case, store = Case.parse(item) if isinstance(item, str) else item, consent.store
    if case.settled:
        return item
    with Index(store) as index:
        index.refresh()
        runs = [store.open(store.folder / entry.folder) for entry in reversed(index.series(case.id))]
    held = [(run, record) for run in runs for record in run.records if record.id == case.id]
    if not held:
        raise UsageError(
            f"{case.id} names a parameter by digest only", why="no saved run holds its full text", do="give the parameter in full with -a"
        )
    found, record = next(((run, record) for run, record in held if consent.covers(run)), held[0])
    full = codec.settled_case(record)
    consent.check([found], [full])
    return full


def execute(
    ready: Plan,
    store: Store,
    command: Sequence[str],
    watching: Callable[[RunWriter], run.RunWatch],
    *,
    resume: str | None = None,
    retry_of: Collection[Status] = (),
    expectations: Sequence[Expectation] = (),
    fail_fast: bool = False,
    sink: Sink | None = None,
) -> RunOutcome:
    """Measure a plan into a new run, or into the unfinished one that `resume` names ("" means the newest that fits).

    With `retry_of` cases with these statuses are measured again, in a new run that copies the rest. With `fail_fast`
    the first case that fails unexpectedly ends it, and the run can be resumed. A `sink` writes the results elsewhere too.
    """
    farm = _farm(ready)
    machine = facts.collect(Path.cwd())
    key = machine_key(ready, machine)
    header = replace(_header(ready, machine, ready.fingerprint(key, machine), command), machine_key=key, farm=ready.on)
    writer = _open(store, header, resume, retry_of)
    known = {} if farm else roofs.load(ready, key, writer.warnings)

    def fails(record: Record) -> bool:
        return fail_fast and record.status in BAD and not foreseen.covered(record, expectations)

    with writer:
        watch = watching(writer)
        for record in _skips(ready):
            if record.id not in writer.done:
                writer.append(record)
        if farm:
            whole = farm.supervise(ready, writer, watch, stop=fails, sink=sink)
        else:
            whole = run.supervise(ready, writer, watch, known, stop=fails, sink=sink)
        if whole:
            writer.seal("complete")
    store.settle()
    if not farm:
        waits.learn(key, writer.done.values(), {job.case.id: job.compiles for job in ready.jobs})
    return RunOutcome(writer.path, ready, expectations)


def _farm(ready: Plan) -> Farm | None:
    """The remote hosts that measure instead of this machine, if any."""
    if not ready.on:
        return None
    from steelyard.engine.farm.running import Farm

    return Farm.of(ready)


def machine_key(ready: Plan, machine: dict[str, object]) -> str:
    """Return the machine key for a run of this plan, which its fingerprint and its history use."""
    farm = _farm(ready)
    return farm.key(machine) if farm else facts.key(machine)


def _open(store: Store, header: Header, resume: str | None, retry_of: Collection[Status]) -> RunWriter:
    """Return the run to write into: an earlier one that is continued, one that retries failed cases, or a new one."""
    asked = resume is not None or bool(retry_of)
    why = retry.other_code(store, header, resume or None, sealed=bool(retry_of)) if asked else ""
    if why and resume:
        raise UsageError(f"run {resume} cannot be continued", why=why, do="undo the change, or start a new run without --resume")
    found = None
    if retry_of and not why:
        found = retry.begin(store, header, resume or None, retry_of)
    elif resume is not None and not why:
        found = store.resume(header.fingerprint, resume or None)
    writer = found or store.create(header)
    writer.own = all_own(writer, header)
    if asked and found is None:
        kind, done = ("saved", "tried again") if retry_of else ("unfinished", "continued")
        reason = why or f"no {kind} run has these cases, settings, code and machine"
        writer.warnings.append(f"{reason}, so nothing is {done} and all cases are measured")
    return writer


def _skips(ready: Plan) -> Iterator[Record]:
    """Yield a skipped record, with the reason, for every case that a deny rule left out: it is part of the experiment."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    for item in ready.denied:
        reason = f"{item.rule.reason} (denied: {item.rule})" if item.rule.reason else f"denied: {item.rule}"
        yield Record(item.case.id, item.case.plain(), "skipped", reason, started=now)


def _header(ready: Plan, machine: dict[str, object], fingerprint: str, command: Sequence[str]) -> Header:
    settings = asdict(ready.settings) | ({partition.SETTING: ready.part} if ready.part else {})
    planned = () if ready.experiment.script else ready.jobs
    cases = [*(item.case.id for item in ready.denied), *(job.case.id for job in planned)]
    pairs = [(job.case.id, job.vs.id) for job in ready.pairs if job.vs]
    return Header(
        version=__version__, command=list(command), experiment=ready.experiment.name, settings=settings, fingerprint=fingerprint,
        cases=cases, pairs=pairs, files=[_relative(file) for file in ready.experiment.files], env=ready.env,
        machine=machine, machine_key=facts.key(machine), sources=dict(ready.sources),
        weights={job.case.id: job.weight for job in planned if job.weight}, recorded=ready.experiment.recorded,
    )  # fmt: skip


def _relative(file: str) -> str:
    """Return a user's file relative to the current folder, so that it means the same file in another checkout."""
    path, here = Path(file).resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def judge(found: Run, *, mistaken: bool = False, expectations: Sequence[Expectation] = ()) -> int:
    """Return the exit code: not 0 if nothing was measured, a case failed or was wrong, a requested comparison is missing, or a part of a
    file could not be read. Expected failures neither fail the run nor count as measured."""
    excused = [record for record in found.records if record.status in BAD and foreseen.covered(record, expectations)]
    names = {record.id for record in excused}
    left = [record for record in found.records if record.id not in names]
    failed = mistaken or any(record.status in BAD for record in left) or bool(unweighed(left)) or bool(_unmade(found))
    measured = any(record.status in ("ok", *BAD) for record in left) or any("time" in record.metrics for record in excused)
    return code_of(failed=failed, measured=measured)


def code_of(statuses: Collection[str] = (), *, failed: bool = False, measured: bool = False) -> int:
    """Return the exit code for some statuses of cases."""
    failed = failed or any(status in BAD for status in statuses)
    measured = measured or any(status in ("ok", *BAD) for status in statuses)
    return exit_code([*([FAILED] if failed else []), *([] if measured else [NOTHING])])


def _unmade(found: Run) -> set[tuple[str, str]]:
    """Return the listed pairs that were not compared although both cases are ok."""
    fine = {record.id for record in found.records if record.status == "ok"}
    made = {(pair.head.id, pair.base.id) for pair in found.pairs}
    return {(head, base) for head, base in found.header.pairs if head in fine and base in fine} - made


def from_experiment(experiment: Experiment, env: str = "") -> Plan:
    """Return the plan of an experiment built in Python, for our own interpreter or that of an environment."""
    scripts = (experiment.script.file,) if experiment.script else ()
    start = envs.place(env) if env else Place()
    catalogue, place = registry.catalogue(), sides.here(experiment.settings.vs, start, (*experiment.files, *scripts))
    if experiment.files:
        catalogue = catalogue.extend(describe(place, experiment.files, ()), ", ".join(experiment.files))
    return replace(plan.expand(experiment, catalogue, place=place, other=_other_side(experiment, place, (), "")), env=env)
