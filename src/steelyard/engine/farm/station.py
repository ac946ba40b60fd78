"""A station: measures groups of cases on its host as a local run does, and sends every answer to the conductor.

`python -m steelyard.engine.farm.station -` reads its ticket from standard input. The main thread measures; another thread handles the
connection, so that a busy host still sends signs of life. Answers are kept until the conductor has stored them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from steelyard.engine import envs, roofs, run
from steelyard.engine.crew import Crew
from steelyard.engine.farm import devices, goods
from steelyard.engine.farm.calibrating import calibrate
from steelyard.engine.farm.line import DONE, StationLine, joining_of
from steelyard.engine.farm.relay import RelayKeeper, RelaySink, RelayWatch
from steelyard.engine.farm.tickets import Ticket, read_ticket
from steelyard.engine.farm.wire import Delayed, Offer, Welcome
from steelyard.engine.monitoring import monitored
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.errors import SteelyardError, told
from steelyard.machine import facts, locks
from steelyard.model.experiment import Experiment, Settings
from steelyard.version import __version__


@dataclass
class Station:
    """One host's part of a run: the connection to the conductor, and what all groups share."""

    line: StationLine
    folder: Path
    key: str
    told: dict[str, str] = field(default_factory=dict)
    files: Path | None = None
    """The folder of the users' files, if they were sent."""

    def work(self) -> None:
        """Measure offered groups until the run is over; an interrupt means that the current group was withdrawn."""
        if self.line.welcome.calibrate:
            with suppress(KeyboardInterrupt):
                self._calibrate()
        if self.line.welcome.goods:
            self._lay_out()
        while not self.line.over:
            with suppress(KeyboardInterrupt), Crew.assemble() as crew:
                while (offer := self.line.next_offer()) is not None:
                    self._measure(offer, crew)
                return

    def _calibrate(self) -> None:
        """Calibrate this host and send the result; locks keep other runs of Steelyard off its CPUs meanwhile."""
        waits = lambda who: self.line.tell(Delayed(f"waiting for {who}, which measures on that machine"))  # noqa: E731
        with locks.hold(locks.cpu_names(), f"run {self.line.welcome.run}, pid {os.getpid()}", waits):
            self.line.tell(calibrate())

    def _lay_out(self) -> None:
        """Unpack the users' files below our folder, at the conductor's paths, and change to the conductor's working folder there."""
        self.files = self.folder / "files"
        here = Path(goods.moved(self.line.welcome.here, self.files))
        here.mkdir(parents=True)
        if data := self.line.goods():
            goods.unpack(data, self.files)
        os.chdir(here)

    def _measure(self, offer: Offer, crew: Crew) -> None:
        """Measure a whole group; if this host cannot, report why, so that another host can try."""
        keeper = RelayKeeper(offer, self.line, self.folder)
        watch, trouble = RelayWatch(offer.mark, self.line), ""
        try:
            self._supervise(part_of(offer, self.line.welcome, self.files), keeper, watch, crew)
        except (SteelyardError, OSError) as error:
            trouble = told(error) if isinstance(error, SteelyardError) else str(error)
        keeper.close(trouble)
        self.line.finished()

    def _supervise(self, plan: Plan, keeper: RelayKeeper, watch: RelayWatch, crew: Crew) -> None:
        todo = [job for job in plan.jobs if not run.is_done(job, keeper)]
        owner = f"run {self.line.welcome.run}, pid {os.getpid()}"
        warnings: list[str] = []
        known = roofs.load(plan, self.key, warnings)
        sink = RelaySink(keeper)
        crew.tell = watch.phase
        for line in warnings:
            watch.note(line)
        waits = lambda who: watch.waiting(f"waiting for {who}, which measures on that machine")  # noqa: E731
        with monitored(todo, plan.settings) as monitor, locks.hold(run.places_of(todo or plan.jobs), owner, waits):
            monitor.begin()
            for _ in run.Supervision(plan, keeper, watch, crew, sink, known, self.told, monitor).records(todo):
                pass


def part_of(offer: Offer, welcome: Welcome, files: Path | None) -> Plan:
    """Return the plan of one group, as a local run would have it."""
    named = tuple(goods.moved(file, files) for file in welcome.files)
    experiment = Experiment(welcome.experiment, settings=Settings.from_plain(welcome.settings), files=named)
    jobs, pairs = ([_at_home(job, welcome, files) for job in jobs] for jobs in (offer.jobs, offer.pairs))
    return Plan(experiment, tuple(jobs), (), welcome.entries, pairs=tuple(pairs), rows=offer.rows, suite=welcome.suite)


def _at_home(job: Job, welcome: Welcome, files: Path | None) -> Job:
    """Return a job with this host's interpreters and files in place of the conductor's."""
    side = job.side
    if side:
        beside = tuple(goods.moved(file, files) for file in side.files)
        side = replace(side, place=_moved(side.place, welcome, files), files=beside)
    return replace(job, place=_moved(job.place, welcome, files), side=side)


def _moved(place: Place, welcome: Welcome, files: Path | None) -> Place:
    """Return a place with our interpreter, or that of our environment of the same name, and with our paths."""
    name = welcome.interpreters.get(place.python)
    if name == "":
        place = replace(place, python=sys.executable)
    elif name:
        there = envs.place(name, place)
        place = replace(place, python=there.python, search_path=there.search_path)
    folder = goods.moved(place.folder, files) if place.folder else ""
    return replace(place, paths=tuple(goods.moved(path, files) for path in place.paths), folder=folder)


def serve(ticket: Ticket, piped: bool) -> int:
    """Run a station until the run is over; return the exit code."""
    machine = facts.collect(Path.cwd())
    key = facts.key(machine)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    made = [env.name for env in envs.listing() if not env.trouble]
    joining = joining_of(ticket, machine, key, envs=tuple(made), devices=devices.count(machine), steelyard=__version__)
    line = StationLine(ticket, joining, sys.stdin.fileno() if piped else None)
    signal.signal(signal.SIGTERM, lambda *_: line.leave(DONE, "it was asked to end"))
    with TemporaryDirectory(prefix="steelyard-station-", ignore_cleanup_errors=True) as folder:
        if line.open():
            Station(line, Path(folder), key, dict(line.welcome.sources)).work()
    code = line.close()
    if line.reason and code:
        print(f"station {ticket.name}: {line.reason}", file=sys.stderr)
    return code


def main(argv: Sequence[str]) -> int:
    """Read the ticket and serve."""
    if len(argv) != 1:
        print("usage: python -m steelyard.engine.farm.station TICKET|-", file=sys.stderr)
        return 2
    try:
        return serve(read_ticket(argv[0]), argv[0] == "-")
    except SteelyardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
