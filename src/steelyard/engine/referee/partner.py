"""A process on the other side of the judge's table: it does one step at a time, and every step is stamped here."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.messages import Converse, Done, Step, Stepped
from steelyard.engine.referee.sound import sound_answer
from steelyard.machine.processes import tree
from steelyard.model.record import Status

CPU_CLOCK = 2
"""The kernel's word for the CPU time of a whole process, with all its threads, also those that have ended."""
TICKS = os.sysconf("SC_CLK_TCK")
ENDS: tuple[Status, ...] = ("failed", "oom", "unsupported")
"""How a process may say itself that a step has ended; how else one ends is seen from outside."""


class Ended(Exception):
    """A process of the trial came to an end, or could not do what it was asked."""

    def __init__(self, status: Status, reason: str, detail: str = "", subject: str = "", lost: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.detail = status, reason, detail
        self.subject, self.lost = subject, lost


class Sabotaged(Exception):
    """A process of the judge's own was stopped, ended or changed while a candidate was judged."""


class Forged(Exception):
    """A message came that the harness in the candidate's process did not send."""


@dataclass
class Partner:
    """A worker that does the judge's steps; `patience` is how many seconds one may take."""

    talk: Conversation
    patience: float
    paused: list[int] = field(default_factory=list)
    pauses: int = 0
    met: dict[int, str] = field(default_factory=dict)
    """Processes that were seen below it, each with the time of its start."""
    settings: tuple[int, frozenset[int]] | None = None
    """Its priority and CPUs, as the judge left them."""

    @property
    def pid(self) -> int:
        """Of the worker itself."""
        return self.talk.worker.pid

    def begin(self, module: str, words: Mapping[str, Any], patience: float | None = None) -> Mapping[str, Any]:
        """Start the job and hear what it says first."""
        answer, _ = self.talk.step(Converse(module, words), patience or self.patience)
        return _sound(answer, self.talk.subject)

    def step(self, do: str, **words: Any) -> tuple[Mapping[str, Any], float]:
        """One step with its answer, and the seconds from asking to hearing it."""
        token = uuid.uuid4().hex
        answer, seconds = self.talk.step(Step({"do": do, "token": token, **words}), self.patience)
        return self._expected(answer, do, token, words), seconds

    def hand(self, do: str, **words: Any) -> Callable[[], Callable[[], Mapping[str, Any]]]:
        """Ask for one step while others are asked too: gives how to wait for its answer, and that gives how to read it.

        All are waited for before one is read, so that a failure of one leaves no unread answer in the pipe of another.
        """
        token = uuid.uuid4().hex
        began = self.talk.hand(Step({"do": do, "token": token, **words}), self.patience)

        def wait() -> Callable[[], Mapping[str, Any]]:
            answer, _ = self.talk.heard(began)
            return lambda: self._expected(answer, do, token, words)

        return wait

    def _expected(self, answer: Any, do: str, token: str, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """The words of an answer, if it is one to what was asked."""
        found = _sound(answer, self.talk.subject)
        if found.get("token") != token:
            raise Forged(f"an answer to '{do}' came without a request")
        if not sound_answer(do, words, found):
            raise Forged(f"an answer to '{do}' came that no harness gives")
        return found

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Nothing of it runs meanwhile."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        """Stop the process and all that it has started: nothing of it runs until it was resumed as often."""
        self.pauses += 1
        if self.pauses == 1:
            self.paused = [self.pid, *self._below()]
            _send(self.paused, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.pauses = max(0, self.pauses - 1)
        if not self.pauses:
            _send(self.paused, signal.SIGCONT)
            self.paused = []

    def cpu(self) -> float:
        """Seconds of CPU that the process and everything below it have used, by the kernel's count."""
        total = _reaped(self.pid)
        for pid in (self.pid, *self._below()):
            with contextlib.suppress(OSError):
                total += time.clock_gettime((~pid << 3) | CPU_CLOCK)
        return total

    def pin(self, cpus: set[int]) -> None:
        """Where it may run."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.pid, cpus)

    def remember(self) -> None:
        """Note its settings, to detect changes later."""
        self.settings = settings(self.pid)

    def touched(self) -> str:
        """What another process did to it, if anything; it is undone."""
        return restored(self.pid, self.settings)

    def _below(self) -> list[int]:
        found = tree(self.pid)
        for pid in found:
            if pid not in self.met:
                self.met[pid] = _started(pid)
        return found

    def left_running(self) -> list[int]:
        """Processes that it has started and that still run, even if it has ended itself."""
        self._below()
        return [pid for pid, start in self.met.items() if start and _started(pid) == start]

    def close(self) -> str:
        """End it with everything that it has started; what it had printed."""
        self.pauses = 0
        self.resume()
        left = self.left_running()
        printed = self.talk.worker.stop().stderr
        _send([pid for pid in left if _started(pid) == self.met[pid]], signal.SIGKILL)
        return printed


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reaped(pid: int) -> float:
    """CPU seconds of children that have ended and were waited for."""
    with contextlib.suppress(IndexError, ValueError):
        fields = _fields(pid)
        return (int(fields[13]) + int(fields[14])) / TICKS
    return 0.0


def settings(pid: int) -> tuple[int, frozenset[int]] | None:
    """Priority and CPUs of a process, while there is one."""
    with contextlib.suppress(OSError):
        return os.getpriority(os.PRIO_PROCESS, pid), frozenset(os.sched_getaffinity(pid))
    return None


def restored(pid: int, was: tuple[int, frozenset[int]] | None) -> str:
    """What another process did to a process, if anything: it was stopped, or has another priority or other CPUs. It is undone."""
    if was is None or (now := settings(pid)) is None:
        return ""
    if _stopped(pid):
        _send([pid], signal.SIGCONT)
        return "was stopped"
    if now == was:
        return ""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, was[1])
        os.setpriority(os.PRIO_PROCESS, pid, was[0])
    return "was given another priority" if now[0] != was[0] else "was moved to other CPUs"


def _stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    return _fields(pid)[:1] == ["T"]


def _started(pid: int) -> str:
    """When a process was started, by the kernel's clock: a number may come to another process. Nothing where it is gone."""
    found = _fields(pid)
    return found[19] if len(found) > 19 and found[0] not in "ZX" else ""


def _fields(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return []


def _sound(answer: Any, subject: str) -> Mapping[str, Any]:
    """The words of an answer; a failure that it tells of is raised."""
    if isinstance(answer, Lost):
        raise Ended(answer.status, answer.reason, answer.stderr, subject, lost=True)
    if isinstance(answer, Done) or not isinstance(answer, Stepped):
        raise Ended("failed", "the process ended its job before it was asked to", subject=subject)
    words = answer.words
    if not isinstance(words, Mapping):
        raise Forged(f"{subject} sent an answer that no harness gives")
    if "status" in words:
        status: Status | None = next((each for each in ENDS if each == words["status"]), None)
        if status is None:
            raise Forged(f"{subject} tried to set its own ruling")
        raise Ended(status, str(words.get("reason", "")), str(words.get("traceback", "")), subject)
    return words
