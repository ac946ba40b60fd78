"""A conductor in this process with stations that are scripted: the real protocol over real sockets, and no measurement behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import codec
from steelyard.engine import conduct
from steelyard.engine.farm.channel import Channel
from steelyard.engine.farm.conductor import Conductor
from steelyard.engine.farm.groups import groups_of
from steelyard.engine.farm.journal import Journal, JournalEvent, read_journal
from steelyard.engine.farm.launchers import Invitation, StationState
from steelyard.engine.farm.terms import FarmRun, FarmTerms
from steelyard.engine.farm.wire import (
    VERSION,
    AttemptMark,
    Beat,
    CaseBegun,
    GroupAnswer,
    GroupDone,
    Joining,
    Kept,
    Offer,
    Welcome,
    Withdrawal,
)
from steelyard.engine.plan import Plan
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import Sink
from steelyard.model.experiment import Experiment, Matrix
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, RunWriter, Store
from steelyard.version import __version__

SECRET = b"s" * 32
QUICK = FarmTerms(beat=0.05, silence=0.4, grace=0.4, fit=0.3)


class NotingWatch(NoWatch):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class NamedLauncher:
    """Says that its stations run, until it is told that one is gone."""

    bind, shares_files = "127.0.0.1", True

    def __init__(self, *names: str) -> None:
        self.count = len(names)
        self.known = {name: StationState(name, "running") for name in names}
        self.asked = 0
        self.dropped: list[str] = []

    def start(self, count: int, invitation: Invitation) -> None:
        self.asked += count

    def states(self) -> Sequence[StationState]:
        return list(self.known.values())

    def drop(self, name: str) -> None:
        self.dropped.append(name)

    def end(self) -> None:
        self.known.clear()


@dataclass
class Peer:
    """A station's end that does what a test says."""

    name: str
    channel: Channel
    welcome: Welcome
    offers: list[Offer] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    withdrawn: list[AttemptMark] = field(default_factory=list)
    beating: asyncio.Task[None] | None = None

    async def beat(self) -> None:
        """Say now and then that it is there."""
        while True:
            self.channel.send(Beat())
            await asyncio.sleep(QUICK.beat)

    async def offer(self) -> Offer:
        """The next offer that it gets."""
        while not self.offers:
            await self.hear()
        return self.offers.pop(0)

    async def hear(self) -> None:
        message = await self.channel.receive()
        if isinstance(message, Offer):
            self.offers.append(message)
        elif isinstance(message, Kept):
            self.kept.append(message)
        elif isinstance(message, Withdrawal):
            self.withdrawn.append(message.mark)

    async def until(self, true: Callable[[], bool]) -> None:
        """Hear until something holds."""
        while not true():
            await self.hear()

    def measure(self, offer: Offer) -> None:
        """Answer for every case of an offer, and end it."""
        for number, job in enumerate(offer.jobs, 1):
            self.channel.send(CaseBegun(offer.mark, job.case.id))
            self.channel.send(answer(offer, job.case.id, number))
        self.finish(offer)

    def finish(self, offer: Offer) -> None:
        """End an offer of which every case was answered for."""
        self.channel.send(GroupDone(offer.mark, len(offer.jobs) + 1))


def answer(offer: Offer, id: str, number: int = 1, **changed: Any) -> GroupAnswer:
    """A sound record of a case."""
    record = Record(id, {}, "ok", metrics={"time": Figure(1e-3, "s", "lower")})
    plain = next((job.case.plain() for job in offer.jobs if job.case.id == id), offer.jobs[0].case.plain())
    return GroupAnswer(offer.mark, number, "record", codec.encode(replace(record, **{"case": plain, **changed})))


@dataclass
class Stage:
    """A run with its conductor, and the door that stations come in by."""

    conductor: Conductor
    run: FarmRun
    launcher: NamedLauncher
    port: int
    peers: list[Peer] = field(default_factory=list)

    @property
    def writer(self) -> RunWriter:
        return self.run.writer

    @property
    def watch(self) -> NotingWatch:
        assert isinstance(self.run.watch, NotingWatch)
        return self.run.watch

    async def station(
        self, name: str = "one", life: str = "1", silent: bool = False, at: tuple[AttemptMark, ...] = (), **more: Any
    ) -> Peer:
        """A station that has joined."""
        channel = await Channel.join("127.0.0.1", self.port, SECRET)
        joined = Joining(name, life, f"host-{name}", 1, {}, more.pop("key", "kind"), at=at, steelyard=__version__, version=VERSION, **more)
        channel.send(joined)
        welcome = await channel.receive()
        assert isinstance(welcome, Welcome)
        self.peers.append(peer := Peer(name, channel, welcome))
        if not silent:
            peer.beating = asyncio.create_task(peer.beat())
        return peer

    async def leave(self) -> None:
        """All stations hang up."""
        for peer in self.peers:
            peer.channel.close()
            if peer.beating:
                peer.beating.cancel()
            with contextlib.suppress(OSError):
                await peer.channel.writer.wait_closed()

    def journal(self) -> list[JournalEvent]:
        return list(read_journal(self.writer.path))

    def events(self, kind: str) -> list[JournalEvent]:
        return [event for event in self.journal() if event.kind == kind]


def plan_of(seconds: Sequence[float], **more: Any) -> Plan:
    """Cases of the virtual clock."""
    settings = more.pop("settings", {})
    experiment = Experiment(matrix=(Matrix(("fake/work",), {"seconds": tuple(seconds)}, **more),))
    return conduct.from_experiment(replace(experiment, settings=replace(experiment.settings, **settings)))


@asynccontextmanager
async def staged(
    plan: Plan, folder: Path, *names: str, terms: FarmTerms = QUICK, writer: RunWriter | None = None, calibrate: bool = False
) -> AsyncIterator[Stage]:
    """A conductor that listens; the block is over when it is."""
    writer = writer or Store(folder / ".steelyard").create(Header(version=__version__))
    journal, launcher = Journal(writer.path), NamedLauncher(*(names or ("one",)))
    run = FarmRun(
        plan, writer, NotingWatch(), Sink(), journal, Welcome(writer.id, plan.settings.plain(), beat=terms.beat, calibrate=calibrate)
    )
    conductor = Conductor(run, groups_of(plan), launcher, terms)
    server = await asyncio.start_server(lambda reader, out: conductor.connected(reader, out, SECRET), "127.0.0.1", 0)
    conducting = asyncio.create_task(conductor.conduct())
    stage = Stage(conductor, run, launcher, server.sockets[0].getsockname()[1])
    try:
        yield stage
        async with asyncio.timeout(20):
            await conducting
            await stage.leave()
            await conductor.part()
    finally:
        conducting.cancel()
        await stage.leave()
        server.close()
        await server.wait_closed()
        journal.close()
        writer.close()


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene, which must end."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scene()

    asyncio.run(bounded())
