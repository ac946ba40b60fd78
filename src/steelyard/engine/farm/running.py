"""A run on a farm, from its plan to its last record: stations are started, the conductor listens for them, and all of them are ended."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine import envs
from steelyard.engine.farm.channel import serving
from steelyard.engine.farm.conductor import MOST_UNPROVED, Conductor
from steelyard.engine.farm.goods import packed
from steelyard.engine.farm.groups import JobGroup, groups_of
from steelyard.engine.farm.journal import Journal
from steelyard.engine.farm.launchers import LOOPBACK, Invitation, Launcher, open_launcher
from steelyard.engine.farm.launchers.addresses import check_ours
from steelyard.engine.farm.terms import FarmRun, FarmTerms
from steelyard.engine.farm.wire import Welcome
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.run import RunWatch, is_done, is_due
from steelyard.engine.sinks import Sink
from steelyard.errors import StoreError, UsageError, told
from steelyard.machine import facts
from steelyard.model.record import Record
from steelyard.store.runs import RunWriter

FILES, FILES_EACH = 256, 8


@dataclass(frozen=True)
class Farm:
    """Where the cases of a run are measured: the value of `--on`, and the timeouts."""

    on: str
    terms: FarmTerms = field(default_factory=FarmTerms.usual)

    @classmethod
    def of(cls, plan: Plan) -> Farm:
        """Return the farm that a plan names; a script, which can only run here, is refused."""
        if plan.experiment.script:
            raise UsageError("a script cannot be run on other machines", why="its own code decides what is measured", do="omit --on")
        return cls(plan.on)

    def check(self) -> None:
        """Raise an error if the farm is not there, or if we cannot listen where its stations connect; done before measuring."""
        check_ours(open_launcher(self.on).bind)

    def key(self, machine: Mapping[str, Any]) -> str:
        """Return the machine key of its runs: this machine's own for `local`, otherwise a hash of the farm's name."""
        name, _, _ = self.on.partition(":")
        return facts.key(dict(machine)) if name == "local" else hashlib.sha256(self.on.encode()).hexdigest()[:12]

    def supervise(
        self,
        plan: Plan,
        writer: RunWriter,
        watch: RunWatch,
        *,
        stop: Callable[[Record], bool] = lambda record: False,
        sink: Sink | None = None,
    ) -> bool:
        """Measure every job that the run does not have yet, as a local run does; return whether it was completed."""
        return supervise(plan, writer, watch, sink or Sink(), self, stop)


def supervise(plan: Plan, writer: RunWriter, watch: RunWatch, sink: Sink, farm: Farm, stop: Callable[[Record], bool]) -> bool:
    """Measure the rest of a plan on a farm; return whether it was completed."""
    sink.planned(plan.rows)
    todo = [group for group in groups_of(plan) if undone(group, writer)]
    if not todo:
        return True
    journal = Journal(writer.path)
    try:
        launcher = open_launcher(farm.on)
        goods = b"" if launcher.shares_files else packed(plan, Path.cwd())
        welcome = replace(_welcome(plan, writer, farm), goods=not launcher.shares_files, here=str(Path.cwd()))
        run = FarmRun(plan, writer, watch, sink, journal, welcome, goods, stop)
        cases, who = sum(len(group.jobs) for group in todo), {"pid": os.getpid(), "host": socket.gethostname()}
        journal.note("opened", on=farm.on, groups=len(todo), cases=cases, **who)
        sink.opened(writer.path)
        make_room(launcher.count)
        asyncio.run(_conduct(run, todo, launcher, farm.terms))
        journal.note("closed", reason="stopped" if run.stopped else "complete")
        return not run.stopped
    except BaseException as error:
        with contextlib.suppress(StoreError):
            journal.note("closed", reason="interrupted" if isinstance(error, KeyboardInterrupt) else told(error, 300))
        raise
    finally:
        sink.released()
        journal.close()


def make_room(stations: int) -> None:
    """Raise the limit of open files, if too low, to what the stations need: their connections, and the files of their launcher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES + FILES_EACH * stations
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise UsageError(f"{stations} stations need {needed} open files", why=f"at most {hard} are allowed", do="raise it: ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def _conduct(run: FarmRun, todo: list[JobGroup], launcher: Launcher, terms: FarmTerms) -> None:
    conductor, secret = Conductor(run, todo, launcher, terms), secrets.token_bytes(32)
    certificate, key = _certificate(launcher)
    server = await asyncio.start_server(
        lambda reader, writer: conductor.connected(reader, writer, secret), launcher.bind, 0,
        ssl=serving(certificate, key) if certificate else None, backlog=min(1024, MOST_UNPROVED + launcher.count),
    )  # fmt: skip
    try:
        port = server.sockets[0].getsockname()[1]
        invitation = Invitation(run.writer.id, launcher.bind, port, secret, certificate)
        conductor.roster.ask = lambda: launcher.start(1, invitation)
        launcher.start(launcher.count, invitation)
        await conductor.conduct()
        await conductor.part()
    finally:
        server.close()
        launcher.end()


def _certificate(launcher: Launcher) -> tuple[str, str]:
    if launcher.bind in (LOOPBACK, "::1"):
        return "", ""
    from steelyard.engine.farm.certificates import made_for

    return made_for(launcher.bind)


def undone(group: JobGroup, writer: RunWriter) -> bool:
    """Whether a run still lacks anything of a group."""
    return not all(is_done(job, writer) for job in group.jobs) or any(is_due(job, writer) for job in group.pairs)


def _welcome(plan: Plan, writer: RunWriter, farm: Farm) -> Welcome:
    """The message about the run that all stations get."""
    places = [place for job in (*plan.jobs, *plan.pairs) for place in _places(job)]
    named = {str(env.python): env.name for env in envs.listing()}
    interpreters = {place.python: named.get(place.python, "") for place in places}
    return Welcome(
        writer.id, plan.settings.plain(), plan.experiment.name, tuple(plan.experiment.files), plan.entries, interpreters,
        plan.comparisons, farm.terms.beat, 2 * farm.terms.grace, dict(plan.sources),
        any(not registry.about_backend(job.case.backend).virtual for job in plan.jobs),
    )  # fmt: skip


def _places(job: Job) -> list[Place]:
    return [job.place, job.side.place] if job.side else [job.place]
