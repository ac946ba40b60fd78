"""`steelyard nightly`: run an experiment, archive it by date, compare with the last good night, report, and exit with the gate's code."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, emit_json, json_option, put, refuse_empty, say, warn, width
from steelyard.cli.run import comma_list, read_settings
from steelyard.cli.run import command as run_command
from steelyard.cli.streams import complain
from steelyard.cli.watch import Watched, typed
from steelyard.errors import INTERRUPTED, UsageError
from steelyard.model.units import number_of

if TYPE_CHECKING:
    from steelyard.engine.nightly.archive import Archive
    from steelyard.engine.nightly.night import Spent
    from steelyard.engine.nightly.since import Since
    from steelyard.engine.plan import Plan
    from steelyard.engine.selection import Request

SHARED = ("devices", "budget", "precision", "isolate", "timeout", "memory", "env", "filters", "excludes", "on", "trust")
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


def _shared(command: click.Command) -> click.Command:
    """The options of `run` that `nightly` shares, unchanged."""
    command.params[-2:-2] = [parameter for parameter in run_command.params if parameter.name in SHARED]
    return command


@_shared
@click.command("nightly", context_settings=CONTEXT)
@click.argument("experiment", required=False)
@click.option("--keep", metavar="ARCHIVE", type=_FOLDER, required=True, help="Folder of all nights; a store for every other command.")
@click.option("--policy", metavar="FILE", type=_FILE, help="The gate's policy: margins, noise floor, allowed and expected failures.")
@click.option("--strict", is_flag=True, help="Exit with 6 when something is unclear or not comparable.")
@click.option("--allow-edited", is_flag=True, help="Also compare cases whose workload was edited since the last good night.")
@click.option("--confirm/--no-confirm", default=True, help="Measure cases that look slower again, both commits interleaved. Default on.")
@click.option("-o", "--output", metavar="DIR", type=_FOLDER, help="Also write this night's reports to this folder.")
@click.option("--report-site", metavar="DIR", type=_FOLDER, help="Update a static site of all nights.")
@click.option("--keep-nights", metavar="N", type=click.IntRange(min=2), help="Remove runs and reports of all but the newest N nights.")
@click.option("--accept", metavar="RUN", help="Measure nothing; accept this night (or latest) as the base of the next.")
@click.option("--case", "cases", metavar="PATTERN", multiple=True, help="With --accept: only these cases of the night; may be repeated.")
@click.option("--reason", metavar="TEXT", help="With --accept: why; kept in the archive and shown in the reports.")
@click.option("--summary/--no-summary", default=True, help="Append report.md to the job summary if there is one. Default on.")
@click.option("--dry-run", is_flag=True, help="Print what would run and which night it is compared with; measure nothing.")
@json_option
def command(experiment: str | None, keep: Path, **options: Any) -> int:
    """Run EXPERIMENT (a suite, an experiment file, another tool's config, a .py file), keep the run and its reports in ARCHIVE, and
    compare every case with its last good night of the same experiment on this machine. A slower night does not become the base of later
    ones unless you accept it with --accept. The exit code is the gate's: 0 pass, 3 cases fail that passed before, 4 regression, 5 nothing
    comparable.

    \b
    steelyard nightly bench.toml --keep archive --policy gate.toml
    steelyard nightly --keep archive --accept m2p4 --case 'op/softmax*' --reason "rounds correctly now"
    """
    from steelyard.engine.nightly.archive import Archive

    if re.match(r"[a-z][a-z0-9+]+:/", str(keep)):
        raise UsageError(f"nights are kept in a folder, not at {str(keep)!r}", do="name a folder: --keep archive")
    archive = Archive(keep)
    if options["accept"] is not None:
        return _accept(archive, experiment, options)
    if options["cases"] or options["reason"] is not None:
        raise UsageError(f"{'--case' if options['cases'] else '--reason'} needs --accept", do="name it: --accept RUN")
    if experiment is None:
        raise UsageError("no experiment named", do="name a suite or a file: steelyard nightly bench.toml --keep archive")
    from steelyard.engine import conduct
    from steelyard.engine.nightly.night import named

    ready = named(conduct.prepare(_request(experiment, options), archive.store), experiment)
    for line in ready.experiment.mistakes:
        complain(line)
    if options["dry_run"]:
        return _preview(ready, archive, as_json=options["as_json"])
    return _spend(ready, archive, options)


def _accept(archive: Archive, experiment: str | None, options: dict[str, Any]) -> int:
    if experiment is not None:
        raise UsageError("--accept measures nothing", do="leave out the experiment")
    reason = " ".join((options["reason"] or "").split())
    if not reason:
        raise UsageError("no reason given", why="accepting a night needs a reason for later readers", do='add --reason "…"')
    night = archive.accept(options["accept"], reason, options["cases"])
    if options["as_json"]:
        emit_json(night)
    else:
        what = f"{', '.join(options['cases'])} of run {night.run}" if options["cases"] else f"run {night.run}"
        say(f"{what} ({night.date}) accepted; the next night is compared with it")
    return 0


def _request(experiment: str, options: dict[str, Any]) -> Request:
    from steelyard.engine.filters import Filters
    from steelyard.engine.selection import Request, read_devices

    refuse_empty(options, "env", "on")
    devices, index = read_devices(comma_list(options["devices"]))
    return Request(
        selectors=(experiment,),
        device=devices,
        settings=read_settings(options),
        env=options["env"],
        device_index=index,
        filters=Filters(tuple(options["filters"]), tuple(options["excludes"])),
        trust=options["trust"],
        on=options["on"] or "",
    )


def _preview(ready: Plan, archive: Archive, *, as_json: bool) -> int:
    from steelyard.engine.nightly.night import foresee
    from steelyard.engine.waits import estimate
    from steelyard.errors import FAILED
    from steelyard.model.units import duration

    outlook, cases = foresee(ready, archive), [job.case.id for job in ready.jobs]
    base, goes_on, about = outlook.base, outlook.goes_on, estimate(ready).about
    if as_json:
        emit_json({"cases": cases, "estimate_s": about, "base": base, "goes_on": goes_on and goes_on.id})
    else:
        for case in cases:
            say(case)
        against = f"compared with the night of {base.date}, run {base.run}" if base else "no good night to compare with yet"
        commit = f", commit {base.commit[:10]}" if base and base.commit else ""
        resumed = f" · continues run {goes_on.id}" if goes_on else ""
        count = number_of(len(cases), "case")
        say(f"{count} · about {duration(about)} · {against}{commit}{resumed} · nothing measured", aside=True)
    return FAILED if ready.experiment.mistakes else 0


def _spend(ready: Plan, archive: Archive, options: dict[str, Any]) -> int:
    from steelyard.codec.known import load_known
    from steelyard.codec.policy import Policy, load_policy
    from steelyard.engine.nightly.assess import Terms
    from steelyard.engine.nightly.night import Extras, spend

    policy = load_policy(options["policy"]) if options["policy"] else Policy()
    policy = replace(policy, known=load_known(archive.store.root))
    terms = Terms(
        policy,
        strict=options["strict"],
        allow_edited=options["allow_edited"],
        confirm=options["confirm"] and not options["on"],
        trusted=options["trust"],
    )
    extras = Extras(options["output"], options["report_site"], options["keep_nights"])
    watch = Watched(ready, lambda left: number_of(left, "case"))

    def tell(text: str) -> None:
        watch.close()
        say(text, aside=True)

    def kept(word: str) -> str:
        saved = f"{number_of(len(watch.writer.done), 'case')} saved in run {watch.writer.id}" if watch.writer and word == "stopped" else ""
        return f"{word}: {saved or f'what was measured is kept in {archive.root}'}\n  continue: the same command, within half a day"

    command = ["steelyard", *typed()]
    spent = watch.through(lambda: spend(ready, archive, command, watch, terms, extras=extras, tell=tell), kept)
    if spent is None:
        return INTERRUPTED
    for warning in dict.fromkeys([*archive.warnings, *spent.notes]):
        warn(warning)
    _show(spent, options)
    return spent.night.exit_code


def _show(spent: Spent, options: dict[str, Any]) -> None:
    from steelyard.cli import gate
    from steelyard.report.verdict import verdict_document

    if options["summary"] and os.environ.get(gate.SUMMARY):
        gate.append_summary(Path(os.environ[gate.SUMMARY]), (spent.folder / "report.md").read_text(encoding="utf-8"))
    if options["as_json"]:
        judgement = spent.found.judgement
        verdict = verdict_document(judgement) if judgement else None
        emit_json({"night": spent.night, "folder": spent.folder, "verdict": verdict, "notes": spent.notes})
        return
    _print(spent)


def _print(spent: Spent) -> None:
    from steelyard.report.verdict import verdict_page

    night = spent.night
    if spent.found.judgement:
        put(verdict_page(spent.found.judgement, width=width()))
    else:
        say(night.headline)
    for line in _since_lines(spent.found.since):
        click.echo(line)
    commits = f" · commits {spent.found.commits}" if ".." in spent.found.commits else ""
    click.echo("")
    say(f"night of {night.date} · run {night.run}{commits}")
    say(spent.folder / "report.html")
    for line in _advice(spent):
        say(line, aside=True)


def _advice(spent: Spent) -> list[str]:
    """Return lines that say which cases are still compared with an older night, and the command that accepts them."""
    held = spent.night.withheld or []
    if not held:
        return []
    archive = shlex.quote(str(spent.folder.parents[1]))
    one = f" --case {shlex.quote(held[0].case)}" if len(held) == 1 else " [--case PATTERN]"
    count = "1 case stays" if len(held) == 1 else f"{len(held)} cases stay"
    return [
        f"{count} compared with the last good night until fixed or accepted; to accept the new level:",
        f'  steelyard nightly --keep {archive} --accept {spent.night.run}{one} --reason "…"',
    ]


def _since_lines(since: Sequence[Since]) -> list[str]:
    """Return lines for the changes of level found this night, each with its commits; small ones are only counted."""
    from steelyard.report.cells import clean
    from steelyard.report.history import change_line

    material = [item for item in since if item.material]
    lines = ["", f"since when ({len(material)})"] if material else []
    for item in material:
        lines += [clean(item.case), f"    {clean(change_line(item.change))}"]
    small = len(since) - len(material)
    return [*lines, *([f"{small} change{'' if small == 1 else 's'} of level within the margin"] if small else [])]
