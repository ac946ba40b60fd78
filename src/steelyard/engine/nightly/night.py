"""One night from start to end: measure or continue a killed night, judge, write the reports, and add a line to the archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.analyze.provenance import commit_of
from steelyard.engine import conduct
from steelyard.engine import run as supervision
from steelyard.engine.nightly import reports
from steelyard.engine.nightly.against import Before
from steelyard.engine.nightly.archive import Archive
from steelyard.engine.nightly.assess import Assessment, Tell, Terms, assess
from steelyard.engine.nightly.lines import Night, night_of
from steelyard.engine.nightly.standing import bases
from steelyard.engine.plan import Plan
from steelyard.engine.retry import edited_since
from steelyard.errors import SteelyardError, told
from steelyard.machine import facts
from steelyard.model.experiment import Experiment
from steelyard.report.web.site import build_site
from steelyard.store.runs import Run, RunInfo, RunWriter, moment, now, read_run

GOES_ON_S = 12 * 3600.0
"""A killed night of the same code is continued within this time; later, one run would hold two nights."""


@dataclass(frozen=True)
class Outlook:
    """What a night would do: the run it would continue, and the night that most cases would be compared with."""

    goes_on: RunInfo | None
    base: Night | None


@dataclass(frozen=True)
class Spent:
    """A completed night; `folder` has its reports, and `notes` list warnings and reports that could not be written."""

    night: Night
    found: Assessment
    folder: Path
    notes: list[str]


@dataclass(frozen=True)
class Extras:
    """What else to do after a night: copy its reports, write a site of all nights, and remove old nights."""

    copy: Path | None = None
    site: Path | None = None
    keep: int | None = None


NOTHING_ELSE = Extras()


def named(ready: Plan, word: str) -> Plan:
    """Return the plan with the name that its nights share: the experiment's own, or else the file's."""
    if ready.experiment.name != Experiment.name:
        return ready
    return replace(ready, experiment=replace(ready.experiment, name=Path(word).name))


def foresee(ready: Plan, archive: Archive) -> Outlook:
    """Return what a night would do; nothing is measured or written."""
    machine = facts.collect(Path.cwd())
    key = conduct.machine_key(ready, machine)
    goes_on, _ = _orphans(archive, ready.fingerprint(key, machine))
    cases = [job.case.id for job in ready.jobs]
    before = went_before(archive, ready.experiment.name, key, goes_on.created if goes_on else "", cases)
    run = next(iter(before.grouped()), "")
    return Outlook(goes_on, next((night for night in before.nights if night.run == run), None))


def went_before(archive: Archive, experiment: str, machine_key: str, created: str, cases: Collection[str]) -> Before:
    """Return the earlier nights and the bases that a night is compared with."""
    nights = archive.before(experiment, machine_key, created)
    found = bases(nights, archive.statuses, cases)
    runs = {id: run for id in {base.run for base in found.values()} if (run := archive.run_of(id))}
    return Before(nights, found, runs, archive.run_of)


def spend(
    ready: Plan,
    archive: Archive,
    command: Sequence[str],
    watching: Callable[[RunWriter], supervision.RunWatch],
    terms: Terms,
    *,
    extras: Extras = NOTHING_ELSE,
    tell: Tell = lambda text: None,
) -> Spent:
    """Do a whole night in an archive, with its reports and extras."""
    with archive.held():
        run = _measured(ready, archive, command, watching, tell)
        cases = list(dict.fromkeys(record.id for record in run.records))
        before = went_before(archive, run.header.experiment, run.header.machine_key, run.header.created, cases)
        found = assess(run, before, terms, archive.store, mistaken=bool(ready.experiment.mistakes), tell=tell)
        notes = list(archive.warnings)
        tell("writing the reports")
        folder = archive.file(run.header.created[:10], lambda fresh: notes.extend(reports.write(found, fresh)))
        night = _line(found, folder, archive)
        archive.append(night)
        notes += _more(extras, archive, night, folder)
    return Spent(night, found, folder, notes)


def _more(extras: Extras, archive: Archive, night: Night, folder: Path) -> Iterator[str]:
    """Do the extras; the verdict is final by now, so their problems are only warnings, which are yielded."""
    if extras.keep and (gone := archive.prune(night.experiment, extras.keep, (night.run, night.base))):
        yield f"{len(gone)} old night{'' if len(gone) == 1 else 's'} removed"
    try:
        if extras.copy:
            shutil.copytree(folder, extras.copy, dirs_exist_ok=True)
    except OSError as error:
        yield f"cannot copy the reports to {extras.copy}: {error.strerror or error}"
    try:
        if extras.site:
            yield from build_site(archive.store, extras.site).warnings
    except OSError as error:
        yield f"cannot write the site {extras.site}: {error.strerror or error}"
    except SteelyardError as error:
        yield told(error)


def _measured(
    ready: Plan, archive: Archive, command: Sequence[str], watching: Callable[[RunWriter], supervision.RunWatch], tell: Tell
) -> Run:
    """Return a new run, or continue the one that a killed night of the same code left recently."""
    machine = facts.collect(Path.cwd())
    before, rest = _orphans(archive, ready.fingerprint(conduct.machine_key(ready, machine), machine))
    archive.leave(rest)
    if before and before.sealed:
        tell(f"run {before.id} was measured completely and not judged: continuing with it")
        return read_run(before.path)
    if before:
        tell(f"continuing run {before.id}, which was killed")
    return conduct.execute(ready, archive.store, command, watching, resume=before.id if before else None).run


def _orphans(archive: Archive, fingerprint: str) -> tuple[RunInfo | None, list[RunInfo]]:
    """Return the killed night that this one continues, if any, and the other killed nights, which will not be continued."""
    left, limit = archive.orphans(), moment(now()) - GOES_ON_S
    near = [info for info in left if info.fingerprint == fingerprint and moment(info.created) > limit]
    fitting = next((info for info in near if not edited_since(info.path)), None)
    return fitting, [info for info in left if info is not fitting]


def _line(found: Assessment, folder: Path, archive: Archive) -> Night:
    files = sorted(path.relative_to(archive.root).as_posix() for path in folder.rglob("*") if path.is_file())
    base, commit = (found.base.runs[0].id, commit_of(found.base.runs[0])[0]) if found.base else ("", "")
    return night_of(
        found.run, found.outcome, found.exit_code, base=base, base_commit=commit, headline=found.headline, confirmed=found.confirmed,
        since=found.since, reports=files, withheld=found.withheld, faster=found.faster,
    )  # fmt: skip
