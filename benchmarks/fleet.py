"""How many hosts one conductor serves: the real protocol over sockets, with simulated stations that come, fail and answer late.

Every simulated station is one connection with its own proofs, counters and heartbeats; its cases take their time on the wall clock and
nothing is computed. Some processes hold hundreds of them. Beside them there are real stations with the fake backend. Told are the rate, the
conductor's CPU time and memory for each host, and the share of the stations' time in which they had nothing to measure.

    python -m benchmarks.fleet --stations 1000 --seconds 1 --each 5
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import codec
from steelyard.engine import conduct
from steelyard.engine.farm.channel import Channel
from steelyard.engine.farm.conductor import Conductor
from steelyard.engine.farm.groups import groups_of
from steelyard.engine.farm.journal import Journal, read_journal
from steelyard.engine.farm.launchers import Invitation, StationState
from steelyard.engine.farm.launchers.local import LocalLauncher
from steelyard.engine.farm.terms import FarmRun, FarmTerms
from steelyard.engine.farm.tickets import Ticket, read_ticket
from steelyard.engine.farm.wire import (
    AttemptMark,
    Beat,
    CaseBegun,
    Farewell,
    FarmMessage,
    GroupAnswer,
    GroupDone,
    Joining,
    Kept,
    Offer,
    Welcome,
    Withdrawal,
)
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import Sink
from steelyard.model.experiment import Experiment, Matrix
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Header, Store, read_run
from steelyard.version import __version__

TOGETHER = 250
"""Simulated stations in one process."""
SAMPLES = bytes(8 * 100)


@dataclass
class Trouble:
    """How often a simulated station fails, as shares of its cases: it dies for good, or its connection is cut before its answer."""

    dies: float = 0.0
    cut: float = 0.0


@dataclass
class SimulatedStation:
    """One station without a host: it holds to the protocol and waits where another one would measure."""

    ticket: Ticket
    seconds: float
    trouble: Trouble
    rng: random.Random
    busy: float = 0.0
    idle: float = 0.0
    done: int = 0
    over: bool = False
    offers: list[Offer] = field(default_factory=list)
    unkept: list[tuple[AttemptMark, int, FarmMessage]] = field(default_factory=list)
    known: dict[AttemptMark, None] = field(default_factory=dict)
    channel: Channel | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)
    life: str = field(default_factory=lambda: secrets.token_hex(8))

    async def live(self) -> None:
        """Until the run is over, or it dies."""
        working = asyncio.create_task(self._work())
        while not self.over:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await self._talk()
            await asyncio.sleep(0.2)
        working.cancel()

    async def _talk(self) -> None:
        ticket = self.ticket
        channel = await Channel.join(ticket.host, ticket.port, ticket.secret)
        joining = Joining(ticket.name, self.life, ticket.name, 0, {}, "0" * 12, at=tuple(self.known), steelyard=__version__)
        channel.send(joining)
        welcome = await channel.receive()
        assert isinstance(welcome, Welcome)
        for _, _, message in self.unkept:
            channel.send(message)
        self.channel = channel
        beating = asyncio.create_task(self._beat(channel, welcome.beat))
        try:
            while not self.over:
                self._take(await channel.receive())
        finally:
            beating.cancel()
            channel.close()
            self.channel = None

    async def _beat(self, channel: Channel, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            channel.send(Beat())

    def _take(self, message: FarmMessage) -> None:
        if isinstance(message, Offer) and message.mark not in self.known:
            self.known[message.mark] = None
            self.offers.append(message)
            self.came.set()
        elif isinstance(message, Kept):
            ended = any(
                isinstance(said, GroupDone) for mark, number, said in self.unkept if (mark, number) == (message.mark, message.number)
            )
            self.unkept = [item for item in self.unkept if item[0] != message.mark or item[1] > message.number]
            if ended:
                self.known.pop(message.mark, None)
        elif isinstance(message, Withdrawal):
            self.known.pop(message.mark, None)
            self.offers = [offer for offer in self.offers if offer.mark != message.mark]
            self.unkept = [item for item in self.unkept if item[0] != message.mark]
        elif isinstance(message, Farewell):
            self.over = True

    async def _work(self) -> None:
        first = True
        while not self.over:
            began = time.monotonic()
            while not self.offers:
                self.came.clear()
                await self.came.wait()
            self.idle += 0.0 if first else time.monotonic() - began
            first = False
            await self._measure(self.offers.pop(0))

    async def _measure(self, offer: Offer) -> None:
        began = time.monotonic()
        for number, job in enumerate(offer.jobs, 1):
            self._say(None, 0, CaseBegun(offer.mark, job.case.id))
            await asyncio.sleep(self.seconds)
            fate = self.rng.random()
            if fate < self.trouble.dies:
                self.over = True
                if self.channel:
                    self.channel.writer.transport.abort()
                return
            if fate < self.trouble.dies + self.trouble.cut and self.channel:
                self.channel.writer.transport.abort()
            record = Record(
                job.case.id, job.case.plain(), "ok", metrics={"time": Figure(self.seconds, "s", "lower", n=100)}, wall_s=self.seconds
            )
            arrays = {"time": ("s", "<f8", SAMPLES)}
            self._say(offer.mark, number, GroupAnswer(offer.mark, number, "record", codec.encode(record), arrays))
        self._say(offer.mark, len(offer.jobs) + 1, GroupDone(offer.mark, len(offer.jobs) + 1))
        self.done += len(offer.jobs)
        self.busy += time.monotonic() - began

    def _say(self, mark: AttemptMark | None, number: int, message: FarmMessage) -> None:
        if mark is not None and mark not in self.known:
            return
        if mark is not None:
            self.unkept.append((mark, number, message))
        if self.channel:
            self.channel.send(message)


async def simulate(ticket: Ticket, count: int, seconds: float, trouble: Trouble) -> dict[str, float]:
    """Some stations in this process, and what they add up to."""
    rng = random.Random(ticket.name)
    stations = [
        SimulatedStation(replace(ticket, name=f"{ticket.name}-{number}"), seconds, trouble, random.Random(rng.random()))
        for number in range(count)
    ]
    await asyncio.gather(*(station.live() for station in stations))
    return {
        "busy": sum(station.busy for station in stations), "idle": sum(station.idle for station in stations),
        "done": sum(station.done for station in stations),
    }  # fmt: skip


class SimulatedLauncher:
    """Processes with hundreds of simulated stations each, and some real ones."""

    bind, shares_files = "127.0.0.1", True

    def __init__(self, count: int, real: int, seconds: float, trouble: Trouble) -> None:
        self.count = count + real
        self._simulated, self._seconds, self._trouble = count, seconds, trouble
        self._processes: list[subprocess.Popen[str]] = []
        self._real = LocalLauncher(real)

    def start(self, count: int, invitation: Invitation) -> None:
        if self._processes:
            return
        for begin in range(0, self._simulated, TOGETHER):
            many = min(TOGETHER, self._simulated - begin)
            words = [str(many), str(self._seconds), str(self._trouble.dies), str(self._trouble.cut)]
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fleet", "--be", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert process.stdin is not None
            process.stdin.write(invitation.ticket(f"s{begin}").decode())
            process.stdin.flush()
            self._processes.append(process)
        if self._real.count:
            self._real.start(self._real.count, invitation)

    def states(self) -> Sequence[StationState]:
        alive = any(process.poll() is None for process in self._processes)
        return [*self._real.states(), *([StationState("simulated", "running")] if alive else [])]

    def drop(self, name: str) -> None:
        self._real.drop(name)

    def end(self) -> None:
        self._real.end()
        for process in self._processes:
            process.kill()
            process.wait()

    def told(self) -> list[dict[str, float]]:
        """What each process of simulated stations says at its end."""
        return [json.loads(process.communicate(timeout=60)[0] or "{}") for process in self._processes]


async def serve(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A whole run with that fleet."""
    cases = options.stations * options.each
    seconds = tuple(round(1e-6 * number, 9) for number in range(1, cases + 1))
    plan = conduct.from_experiment(Experiment(matrix=(Matrix(("fake/work",), {"seconds": seconds}),)))
    writer = Store(folder).create(Header(version=__version__, cases=[job.case.id for job in plan.jobs]))
    launcher = SimulatedLauncher(options.stations, options.real, options.seconds, Trouble(options.dies, options.cut))
    terms, secret = FarmTerms.usual(), secrets.token_bytes(32)
    journal = Journal(writer.path)
    run = FarmRun(plan, writer, NoWatch(), Sink(), journal, Welcome(writer.id, plan.settings.plain(), suite=0, beat=terms.beat))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    conductor = Conductor(run, groups_of(plan), launcher, terms)
    server = await asyncio.start_server(lambda reader, out: conductor.connected(reader, out, secret), launcher.bind, 0, backlog=1024)
    launcher.start(launcher.count, Invitation(writer.id, launcher.bind, server.sockets[0].getsockname()[1], secret))
    try:
        while len(conductor.fleet) < options.stations * 0.99:
            await asyncio.sleep(0.1)
        began, spent, had = time.monotonic(), time.process_time(), len(writer.done)
        await conductor.conduct()
        wall, cpu = time.monotonic() - began, time.process_time() - spent
        await conductor.part()
        told = launcher.told()
    finally:
        server.close()
        launcher.end()
        writer.seal()
        writer.close()
        journal.close()
    found = read_run(writer.path)
    busy, idle = (sum(part.get(name, 0.0) for part in told) for name in ("busy", "idle"))
    kept = len(found.records) - had
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "stations": options.stations, "real": options.real, "cases": len(found.records),
        "each_once": len({record.id for record in found.records}) == cases == len(found.records), "wall_s": wall, "rate": kept / wall,
        "cpu_share": cpu / wall, "cpu_ms_per_case": 1e3 * cpu / kept, "cpu_share_per_host": cpu / wall / options.stations,
        "memory_kb_per_host": memory / options.stations, "lost_to_dispatch": idle / (busy + idle) if busy else 0.0,
        "lost_stations": sum(event.kind == "lost" for event in read_journal(writer.path)),
    }  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Print what a fleet of that size costs."""
    if words[:1] == ["--be"]:
        count, seconds, dies, cut = words[1:]
        print(json.dumps(asyncio.run(simulate(read_ticket("-"), int(count), float(seconds), Trouble(float(dies), float(cut))))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stations", type=int, default=1000)
    parser.add_argument("--real", type=int, default=2, help="real stations with the fake backend beside them")
    parser.add_argument("--seconds", type=float, default=1.0, help="what a case takes")
    parser.add_argument("--each", type=int, default=5, help="cases for each station")
    parser.add_argument("--dies", type=float, default=0.0, help="share of cases at which a station dies")
    parser.add_argument("--cut", type=float, default=0.0, help="share of cases at which a connection is cut")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="steelyard-fleet-") as folder:
        for name, value in asyncio.run(serve(options, Path(folder))).items():
            print(f"{name:20} {value:.4g}" if isinstance(value, float) else f"{name:20} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
