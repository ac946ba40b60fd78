"""A process that does the judge's steps, one at a time; every step is timed here, outside of that process."""

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
from steelyard.engine.process import end_tree
from steelyard.engine.referee.sound import sound_answer
from steelyard.machine.processes import tree
from steelyard.model.record import Status

CPU_CLOCK = 2
"""The kernel's number of the clock for a process's CPU time, including all its threads, also those that have ended."""
TICKS = os.sysconf("SC_CLK_TCK")
ENDS: tuple[Status, ...] = ("failed", "oom", "unsupported")
"""Statuses that a process may report itself for a failed step; any other end is noticed from outside."""


class Ended(Exception):
    """A process of the trial ended, or could not do a step."""

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
    """Descendants that were seen, each with the time of its start."""
    settings: tuple[int, frozenset[int]] | None = None
    """Its priority and CPUs, as the judge set them."""

    @property
    def pid(self) -> int:
        """The process id of the worker itself."""
        return self.talk.worker.pid

    def begin(self, module: str, words: Mapping[str, Any], patience: float | None = None) -> Mapping[str, Any]:
        """Start the job and return its first words."""
        answer, _ = self.talk.step(Converse(module, words), patience or self.patience)
        return _sound(answer, self.talk.subject)

    def step(self, do: str, **words: Any) -> tuple[Mapping[str, Any], float]:
        """Do one step; return its answer, and the seconds from the request to the answer."""
        token = uuid.uuid4().hex
        answer, seconds = self.talk.step(Step({"do": do, "token": token, **words}), self.patience)
        return self._expected(answer, do, token, words), seconds

    def hand(self, do: str, **words: Any) -> Callable[[], Callable[[], Mapping[str, Any]]]:
        """Request one step in parallel with other partners: returns a function that waits for the answer, which returns one that reads it.

        Wait for all partners before reading any answer, so that a failure of one leaves no unread answer in another's pipe.
        """
        token = uuid.uuid4().hex
        began = self.talk.hand(Step({"do": do, "token": token, **words}), self.patience)

        def wait() -> Callable[[], Mapping[str, Any]]:
            answer, _ = self.talk.heard(began)
            return lambda: self._expected(answer, do, token, words)

        return wait

    def _expected(self, answer: Any, do: str, token: str, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the words of an answer; anything but the answer to this request is refused."""
        found = _sound(answer, self.talk.subject)
        if found.get("token") != token:
            raise Forged(f"an answer to '{do}' came without a request")
        if not sound_answer(do, words, found):
            raise Forged(f"the answer to '{do}' does not have the form that the harness gives it")
        return found

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop the process and its descendants inside of this block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        """Stop the process and all that it has started, until `resume` was called as often."""
        self.pauses += 1
        if self.pauses == 1:
            self.paused = [self.pid, *self._below()]
            send(self.paused, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process continue, once every `pause` is undone."""
        self.pauses = max(0, self.pauses - 1)
        if not self.pauses:
            send(self.paused, signal.SIGCONT)
            self.paused = []

    def cpu(self) -> float:
        """Return the CPU seconds that the process and its descendants have used, as the kernel counts them."""
        total = _reaped(self.pid)
        for pid in (self.pid, *self._below()):
            with contextlib.suppress(OSError):
                total += time.clock_gettime((~pid << 3) | CPU_CLOCK)
        return total

    def pin(self, cpus: set[int]) -> None:
        """Set the CPUs on which the process may run."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.pid, cpus)

    def remember(self) -> None:
        """Note its settings, to detect changes later."""
        self.settings = settings(self.pid)

    def touched(self) -> str:
        """Return what another process did to it, if anything, and undo it."""
        return restored(self.pid, self.settings)

    def check_untouched(self) -> None:
        """Raise `Sabotaged` if another process did something to it."""
        if done := self.touched():
            raise Sabotaged(f"{self.talk.subject} {done} while this candidate was judged")

    def _below(self) -> list[int]:
        found = tree(self.pid)
        for pid in found:
            if pid not in self.met:
                self.met[pid] = _started(pid)
        return found

    def left_running(self) -> list[int]:
        """Return processes that it has started and that are still running, even if it has ended itself."""
        self._below()
        return [pid for pid, start in self.met.items() if start and _started(pid) == start]

    def kill(self) -> None:
        """Kill the process and everything that it has started, without waiting until they have ended."""
        self.pauses = 0
        self.resume()
        left = self.left_running()
        if not self.talk.worker.gone:
            end_tree(self.pid, itself=True)
        send([pid for pid in left if _started(pid) == self.met[pid]], signal.SIGKILL)

    def close(self) -> str:
        """End the process and everything that it has started; return what it printed."""
        self.pauses = 0
        self.resume()
        left = self.left_running()
        printed = self.talk.worker.stop().stderr
        send([pid for pid in left if _started(pid) == self.met[pid]], signal.SIGKILL)
        return printed


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reaped(pid: int) -> float:
    """Return the CPU seconds of children that have ended and were waited for."""
    with contextlib.suppress(IndexError, ValueError):
        fields = _fields(pid)
        return (int(fields[13]) + int(fields[14])) / TICKS
    return 0.0


def settings(pid: int) -> tuple[int, frozenset[int]] | None:
    """Return the priority and CPUs of a process; None if it has ended."""
    with contextlib.suppress(OSError):
        return os.getpriority(os.PRIO_PROCESS, pid), frozenset(os.sched_getaffinity(pid))
    return None


def restored(pid: int, was: tuple[int, frozenset[int]] | None) -> str:
    """Undo what another process did to this one: a stop, another priority or other CPUs. Return what it was, if anything."""
    if was is None or (now := settings(pid)) is None:
        return ""
    if _stopped(pid):
        send([pid], signal.SIGCONT)
        return "was stopped"
    if now == was:
        return ""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, was[1])
        os.setpriority(os.PRIO_PROCESS, pid, was[0])
    return "was given another priority" if now[0] != was[0] else "was moved to other CPUs"


def _stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    return _fields(pid)[:1] == ["T"]


def _started(pid: int) -> str:
    """Return when a process was started, by the kernel's clock, since process ids are reused; empty if it is gone."""
    found = _fields(pid)
    return found[19] if len(found) > 19 and found[0] not in "ZX" else ""


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, beginning with the state."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return []


def _sound(answer: Any, subject: str) -> Mapping[str, Any]:
    """Return the words of an answer; a failure that it reports is raised."""
    if isinstance(answer, Lost):
        raise Ended(answer.status, answer.reason, answer.stderr, subject, lost=True)
    if isinstance(answer, Done) or not isinstance(answer, Stepped):
        raise Ended("failed", "the process ended its job too early", subject=subject)
    words = answer.words
    if not isinstance(words, Mapping):
        raise Forged(f"{subject} sent an answer that the harness does not send")
    if "status" in words:
        status: Status | None = next((each for each in ENDS if each == words["status"]), None)
        if status is None:
            raise Forged(f"{subject} tried to set its own ruling")
        raise Ended(status, str(words.get("reason", "")), str(words.get("traceback", "")), subject)
    return words
