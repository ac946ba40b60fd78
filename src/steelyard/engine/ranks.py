"""Runs several processes as one case: the worker is rank 0, starts the other ranks, sends them orders over pipes and gathers their times.

The ranks find each other through a file in their own folder, so no port is needed that could be taken. A rank that
dies is noticed at once: by the end of its pipe, by the transport, or, if rank 0 hangs in it, by a thread that waits for
the processes, prints the reason and ends the worker.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard.backends.base import ALONE, Seat
from steelyard.engine.launch import Ending
from steelyard.engine.messages import Sources
from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported
from steelyard.measuring.clock import HostTimer, Loop, Timer
from steelyard.measuring.sample import single
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.record import Verification
from steelyard.model.task import Reading, Task

GRACE = 5.0
FAREWELL = 5.0
LAST_WORDS = 1.0
BATCH, MOST, PROBES = 2e-3, 1000, 3
CROWD = 8
STUCK = 70
PATIENCE = 0.5
"""The part of a case's time that a rank waits for another: the rest is for reporting which one did not come."""
TIMED_OUT = re.compile(r"tim(ed|e) ?-?out", re.IGNORECASE)

Build = Callable[[], Task]


class RankLost(SteelyardError):
    """A rank's process has ended, so its case has failed."""


@dataclass
class Peer:
    """One further rank: its process, its pipes, and its unread output."""

    rank: int
    process: subprocess.Popen[bytes]
    pidfd: int | None
    buffer: bytes = b""

    @classmethod
    def start(cls, seat: Seat) -> Peer:
        """Start a rank in a fresh interpreter; its output goes to the worker's stderr."""
        process = subprocess.Popen(
            [sys.executable, "-m", "steelyard.engine.peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | variables(seat)
        )
        return cls(seat.rank, process, os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one order; a rank that has ended is noticed when its answer is awaited."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next answer, or None if there is none in time; an error of the rank is raised here."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            watched = [out] if self.pidfd is None else [out, self.pidfd]
            ready = select.select(watched, [], [], timeout)[0]
            if not ready:
                return None
            data = os.read(out, 1 << 16) if out in ready else b""
            if not data:
                raise RankLost(self.ending())
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise _remote(self.rank, **message["error"])
        return message

    def ending(self) -> str:
        """How the process ended, in words."""
        return f"rank {self.rank} {Ending(self.process.wait(), '')}"

    def dismiss(self) -> None:
        """Close the pipes, at which a rank exits, and kill it if it does not."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self.process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)


def _remote(rank: int, status: str, reason: str) -> Exception:
    kinds: dict[str, type[Exception]] = {
        "unsupported": Unsupported, "not_applicable": NotApplicable, "not_applied": NotApplied, "oom": MemoryError,
    }  # fmt: skip
    return kinds.get(status, SteelyardError)(f"rank {rank}: {reason}")


def variables(seat: Seat) -> dict[str, str]:
    """The variables that libraries for several processes read."""
    rank, size = str(seat.rank), str(seat.size)
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}


@dataclass
class Ranks:
    """All ranks of a case for rank 0; with one rank nothing is sent, and the task is timed as it is."""

    seat: Seat = ALONE
    peers: list[Peer] = field(default_factory=list)
    disturbances: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    order: str = "start"
    returned: bool = False
    """Whether rank 0 got an error from the transport, so that the other ranks are queried for its cause."""

    def tell(self, order: str, arm: int = 0, **words: Any) -> None:
        """Send an order to the other ranks; rank 0 then does the same itself and gathers."""
        self.order = order
        for peer in self.peers:
            peer.send({"do": order, "arm": arm, **words})

    def gather(self, patience: float | None = None) -> list[dict[str, Any]]:
        """One answer from each of the other ranks; raises for one that gives none in time."""
        answers = []
        for peer in self.peers:
            answer = peer.answer(patience or self.seat.patience)
            if answer is None:
                raise RankLost(self.stuck([peer]))
            answers.append(answer)
        return answers

    def hurry(self, left: float) -> None:
        """Let all ranks wait for each other for only a part of the time that is left, so that one that hangs can be reported in time.

        If the machine is busy, most of a case's time can go by before all ranks have started.
        """
        patience = round(max(1.0, left * PATIENCE), 1)
        if patience < self.seat.patience:
            self.seat = replace(self.seat, patience=patience)
            for peer in self.peers:
                peer.send({"do": "hurry", "patience": patience})

    def stuck(self, silent: Sequence[Peer]) -> str:
        """A message on which ranks do not answer."""
        names = " and ".join(f"rank {peer.rank}" for peer in silent)
        end = "and hangs" if len(silent) == 1 else "and at least one of them hangs"
        return f"{names} gave no answer to {self.order} within {self.seat.patience:g} s {end}"

    def agree(self, own: Verification | None) -> Verification | None:
        """Combine the checks of all ranks' answers: if one of them failed, the result is failed."""
        for peer, answer in zip(self.peers, self.gather(), strict=True):
            found = answer["verification"]
            if own and found and found["status"] == "failed" and own.status != "failed":
                own = replace(Verification(**found), message=f"rank {peer.rank}: {found['message']}")
        if self.peers and own and own.status == "passed":
            return replace(own, against=f"{own.against}, on all {self.seat.size} ranks")
        return own

    def timer(self, be: Any) -> Timer:
        """The timer for the task that `lead` returns."""
        own: Timer = be.timer()
        return CrewTimer(self, own) if self.peers else own

    def lead(self, be: Any, task: Task, settings: Settings, arm: int = 0) -> Task:
        """The task as all ranks run it together: each times its own calls, and the slowest counts."""
        if not self.peers:
            return task
        if not be.joined:
            raise NotApplicable("this workload does not communicate, so it cannot use several ranks", do="call be.join() in one that does")
        if task.fn is None:
            raise NotApplicable("a task that times itself cannot be timed on several ranks")
        timer: Timer = be.timer()
        loop = timer.bind(task)

        def together(calls: int) -> list[float]:
            self.tell("run", arm, calls=calls)
            answers = [timed(be, timer, loop, calls), *self.gather()]
            self.disturbances += sum(answer["disturbances"] for answer in answers)
            return [answer["ns"] * 1e-9 / calls for answer in answers]

        if arm not in self.counts:
            alone = settings.sampling == "calls" or settings.fixed is not None or single(task)
            self.counts[arm] = 1 if alone else batch(min(max(together(1)) for _ in range(PROBES)))

        def measure() -> Reading:
            seconds = together(self.counts[arm])
            return Reading(max(seconds), {"fastest_rank_time": min(seconds)})

        return replace(task, fn=None, args=(), kwargs={}, phases={}, prepare=None, scope=None, measure=measure)

    def rebuilt(self, be: Any, rebuild: Build, settings: Settings, arm: int) -> Build:
        """The function with which a comparison gets new buffers on all ranks, in the existing group."""
        if not self.peers:
            return rebuild

        def build() -> Task:
            self.tell("rebuild", arm)
            task = rebuild()
            self.gather()
            return self.lead(be, task, settings, arm)

        return build

    def find_out(self, task: Task, notes: Any) -> None:
        """Add what the task reports about itself, on all ranks at once, to the notes of its record."""
        if task.findings:
            self.tell("findings")
            found = task.findings()
            self.gather()
            notes.effective.update(found.facts)
            notes.arrays.update(found.arrays)
            notes.metrics.update(found.figures)

    def facts(self) -> dict[str, Any]:
        """Facts on how the case was timed."""
        if not self.peers:
            return {}
        return {"ranks": self.seat.size, "calls_per_reading": self.counts.get(0, 1), "time_of": "the slowest rank"}

    def give_up(self, error: Exception) -> Exception:
        """End the other ranks, and return the error to report."""
        self.returned = True
        cause = self.blame(error)
        for peer in self.peers:
            peer.process.kill()
        return cause

    def blame(self, error: Exception) -> Exception:
        """The cause behind an error of the transport: a rank that died, with its last output, or one that hangs. Ranks that wait for a
        hanging one give up later than the first, so they get time to report.
        """
        if not isinstance(error, RuntimeError):
            return error
        found: list[Exception] = []
        silent: list[Peer] = []
        late = TIMED_OUT.search(str(error)) is not None
        until = time.monotonic() + (max(LAST_WORDS, self.seat.patience / 2) if late else LAST_WORDS)
        for peer in self.peers:
            try:
                if peer.answer(max(0.0, until - time.monotonic())) is None:
                    silent.append(peer)
            except Exception as word:
                found.append(word)
        lost = [word for word in found if isinstance(word, RankLost)]
        if silent and not lost and late:
            return RankLost(self.stuck(silent))
        return next(iter([*lost, *found]), error)


class CrewTimer(HostTimer):
    """A host timer that counts the disturbances of all ranks."""

    def __init__(self, crew: Ranks, own: Timer) -> None:
        super().__init__(threads=crew.seat.size)
        self.crew, self.own = crew, own

    def disturbances(self) -> int:
        return self.crew.disturbances

    def steady(self) -> bool:
        return self.own.steady()


def timed(be: Any, timer: Timer, loop: Loop, calls: int) -> dict[str, int]:
    """Take one reading on a rank: wait for the other ranks, then time its own calls."""
    be.barrier()
    before = timer.disturbances()
    return {"ns": loop(calls), "disturbances": timer.disturbances() - before}


def batch(seconds: float) -> int:
    """Calls in one reading, enough that leaving a barrier at different times and reading clocks do not matter."""
    return min(MOST, max(1, math.ceil(BATCH / max(seconds, 1e-9))))


@contextlib.contextmanager
def assemble(cases: Sequence[Case], settings: Settings, sources: Sources, leave: Callable[[], None]) -> Iterator[Ranks]:
    """Start the ranks for cases with the same number of them; all are ended, however the case ends."""
    size = cases[0].ranks
    if size == 1:
        yield Ranks()
        return
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if size > CROWD * processors:
        raise Unsupported(f"{size} ranks are more than {CROWD} for each of {processors} CPUs", do="use fewer ranks")
    began, folder = time.monotonic(), tempfile.mkdtemp(prefix="steelyard-ranks-")
    seat = Seat(0, size, str(Path(folder) / "meeting"), settings.timeout * PATIENCE)
    crew = Ranks(seat)
    job = {"cases": [case.plain() for case in cases], "settings": asdict(settings), "sources": asdict(sources)}
    try:
        with _environment(variables(seat)):
            for rank in range(1, size):
                crew.peers.append(Peer.start(replace(seat, rank=rank)))
                crew.peers[-1].send({**job, "seat": asdict(replace(seat, rank=rank))})
            crew.gather(settings.timeout)
            crew.hurry(settings.timeout - (time.monotonic() - began))
            with _watched(crew, folder):
                try:
                    yield crew
                    crew.tell("quit")
                except Exception as error:
                    raise crew.give_up(error) from None
                finally:
                    with contextlib.suppress(RuntimeError):
                        leave()
    finally:
        for peer in crew.peers:
            peer.dismiss()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _environment(found: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in found}
    os.environ.update(found)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _watched(crew: Ranks, folder: str) -> Iterator[None]:
    """Wait for the other ranks' processes; if one ends and rank 0 does not return from the transport, end the worker too."""
    fds = {peer.pidfd: peer for peer in crew.peers if peer.pidfd is not None}
    stop, wake = os.pipe()

    def watch() -> None:
        ready = select.select([*fds, stop], [], [])[0]
        if stop in ready or select.select([stop], [], [], GRACE)[0] or crew.returned:
            return
        lost = next(peer for fd, peer in fds.items() if fd in ready)
        os.write(2, f"{lost.ending()} during {crew.order}, while rank 0 waited for it\n".encode())
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(STUCK)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.write(wake, b"\0")
        watcher.join()
        os.close(stop)
        os.close(wake)
