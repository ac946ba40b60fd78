"""The conductor's side of the pipe: sends a worker its job, receives its answers, and reports how it was lost if none come. Supervision,
passes, checks and comparisons talk to workers only through this.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from steelyard import clocks, codec
from steelyard.engine.launch import Worker
from steelyard.engine.limits import WATCH_EVERY, MemoryLimit
from steelyard.engine.messages import (
    Answer,
    Converse,
    Done,
    Expanded,
    Exported,
    Fault,
    Fit,
    Go,
    Order,
    Phase,
    Started,
    Step,
    Stepped,
    Waiting,
    decode,
    encode,
)
from steelyard.engine.process import stay_awake
from steelyard.errors import SteelyardError, UsageError
from steelyard.machine.load import oom_kills
from steelyard.model.record import Status
from steelyard.model.units import plain as quantity

KILLED = -9
LOOK_EVERY = 1.0
"""Seconds between checks of a worker whose end the system does not signal."""
LONGEST_WORDS, LONGEST_REFUSAL = 200, 300


@dataclass(frozen=True)
class Lost:
    """A job that did not finish: its status, the reason, and the last lines the worker printed; `fault` is the error that it reported."""

    status: Status
    reason: str
    stderr: str = ""
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"

    def understood(self, refusals: Sequence[str]) -> Lost:
        """Return this loss as unsupported if the last lines before a crash match a library's refusal, else unchanged."""
        found = next((match for words in refusals if (match := re.search(words, self.stderr))), None) if self.status == "crashed" else None
        return self if found is None else replace(self, status="unsupported", reason=found[0][:LONGEST_REFUSAL].strip())


@dataclass
class Conversation:
    """A worker and its current job.

    `subject` is the worker's name in reasons. If `gated`, a waiting worker continues only when `go` is called; else at once. `awake` is how
    many seconds the answer to a step is waited for without sleeping.
    """

    worker: Worker
    limit: MemoryLimit | None = None
    subject: str = "the worker"
    gated: bool = False
    awake: float = 0.0
    phase: str = field(default="start", init=False)
    over: bool = field(default=True, init=False)
    deadline: float | None = field(default=None, init=False)
    _patience: float | None = field(default=None, init=False)
    _kills: int = field(default=0, init=False)
    _oom_kills: int = field(default=0, init=False)

    def ask(self, job: Order, patience: float | None, first: float = 0.0) -> None:
        """Send a job that may take `patience` seconds; if it has many parts, each part may.

        None means no limit. The first part may take at least `first` seconds.
        """
        self.phase, self.over, self._patience = "start", False, patience
        self.deadline = None if patience is None else time.monotonic() + max(first, patience)
        self._kills, self._oom_kills = self.limit.kills() if self.limit else 0, oom_kills()
        self.worker.send(encode(job))

    def go(self) -> None:
        """Let a waiting worker begin timing."""
        self.worker.send(encode(Go()))

    def step(self, order: Converse | Step, patience: float) -> tuple[Answer | Lost, float]:
        """Send one step of a job, or the job itself, and wait for the answer; returns it with the seconds it took."""
        return self.heard(self.hand(order, patience))

    def hand(self, order: Converse | Step, patience: float) -> int:
        """Send one step, or the job itself; returns the time at which it was sent."""
        self.over, self._patience, self.deadline = False, patience, time.monotonic() + patience
        line = encode(order)
        began = clocks.perf_counter_ns()
        self.worker.send(line)
        return began

    def heard(self, began: int) -> tuple[Answer | Lost, float]:
        """Wait for the answer to a step; returns it with the seconds since the step was sent."""
        while True:
            heard = self._next()
            seconds = 1e-9 * (heard[1] - began)
            for answer in heard[0]:
                if isinstance(answer, (Stepped, Lost, Done)):
                    return answer, seconds

    def _next(self) -> tuple[list[Answer | Lost], int]:
        """Wait for the next messages; returns them with the time at which they arrived."""
        stay_awake([fd for fd in (self.worker.events, self.worker.pidfd) if fd is not None], self.awake)
        came: list[int] = []
        found = [answer for _, answer in listen([self], ready=lambda: came.append(clocks.perf_counter_ns()))]
        return found, came[0]

    def answers(self) -> Iterator[Answer | Lost]:
        """Yield everything the worker sends about its job, up to Done or Lost, which comes last."""
        while not self.over:
            yield from (answer for _, answer in listen([self]))

    def struck(self) -> str:
        """Return why a case that ended normally ran out of memory after all: the kernel killed a process that it had started. Only once."""
        kills = self.limit.kills() if self.limit else 0
        before, self._kills = self._kills, max(kills, self._kills)
        return self._too_much() if kills > before else ""

    def hear(self) -> Iterator[Answer | Lost]:
        """Yield the answers that have arrived, without waiting."""
        if self.limit and not self.limit.group and self.limit.exceeded(self.worker.pid):
            yield self._lose("oom", self._too_much())
            return
        for line in self._lines():
            if line is None:
                yield self._autopsy()
                return
            if isinstance(line, Lost):
                yield line
                return
            try:
                answer = decode(line, codec.decode, codec.parse)
            except ValueError:
                yield self._lose("crashed", f"{self.subject} sent an invalid message during {self.phase}")
                return
            if isinstance(answer, Fault):
                parts = UsageError(answer.what, why=answer.why, do=answer.do, where=answer.where)
                self.over = True
                yield Lost("failed", str(parts), self.worker.stop().stderr, answer)
                return
            if answer is not None and not isinstance(answer, Order):
                self._note(answer)
                yield answer
                if self.over:
                    return

    def _lines(self) -> Iterator[bytes | Lost | None]:
        """Yield the messages the worker has written; a worker that sends an endless message is ended."""
        try:
            yield from self.worker.lines()
        except SteelyardError as error:
            yield self._lose("crashed", f"{self.subject} sent an endless message during {self.phase}: {error}")

    def _note(self, answer: Answer) -> None:
        if isinstance(answer, Phase):
            self.phase = answer.name
        elif isinstance(answer, Done):
            self.over = True
        elif isinstance(answer, (Expanded, Exported, Fit, Started)):
            self.phase = {Started: "measuring", Expanded: ""}.get(type(answer), self.phase)
            self.deadline = None if self._patience is None else time.monotonic() + self._patience
        elif isinstance(answer, Waiting) and not self.gated:
            self.go()

    def give_up(self) -> Lost:
        """End a worker whose time is up."""
        return self._lose("timeout", f"no answer within {quantity(self._patience or 0.0, 's')} (last seen: {self.phase})")

    def _lose(self, status: Status, reason: str) -> Lost:
        self.over = True
        return Lost(status, reason, self.worker.stop().stderr)

    def _too_much(self) -> str:
        assert self.limit is not None
        return f"used more memory than its limit of {quantity(self.limit.limit, 'B')} (enforced by {self.limit.kind}) during {self.phase}"

    def _autopsy(self) -> Lost:
        """Return how a worker's process ended: by the kernel's counts if it was killed, else by its own last output."""
        self.over = True
        self.worker.ends_soon()
        ending = self.worker.stop()
        if self.limit and (self.limit.struck() or (ending.code == KILLED and self.limit.group)):
            return Lost("oom", self._too_much(), ending.stderr)
        if ending.code == KILLED and oom_kills() > self._oom_kills:
            return Lost("oom", f"the system ran out of memory and ended {self.subject} during {self.phase}", ending.stderr)
        last = next((line.strip() for line in reversed(ending.stderr.splitlines()) if line.strip()), "")
        words = f"; last output: {last[:LONGEST_WORDS]}" if last else ""
        when = f" during {self.phase}" if self.phase else ""
        return Lost("crashed", f"{self.subject} {ending}{when}{words}", ending.stderr)


def listen(
    talks: Sequence[Conversation], until: float | None = None, ready: Callable[[], None] = lambda: None
) -> Iterator[tuple[Conversation, Answer | Lost]]:
    """Wait for the next messages of several workers and yield them; a worker past its deadline is ended and counts as lost.

    Yields nothing if `until` comes first. `ready` is called when the wait is over, before anything is read. A worker's death is detected
    from its process, not from the end of its pipe, which a grandchild may hold open.
    """
    ends = [talk.deadline for talk in talks if talk.deadline is not None] + ([] if until is None else [until])
    left = max(0.0, min(ends) - time.monotonic()) if ends else None
    pauses = [WATCH_EVERY for talk in talks if talk.limit and not talk.limit.group]
    pauses += [LOOK_EVERY for talk in talks if talk.worker.pidfd is None]
    wait = min([*pauses, *([] if left is None else [left])], default=None)
    fds = [fd for talk in talks for fd in (talk.worker.events, talk.worker.pidfd) if fd is not None]
    select.select(fds, [], [], wait)
    ready()
    for talk in talks:
        yield from ((talk, answer) for answer in talk.hear())
        if not talk.over and talk.deadline is not None and time.monotonic() >= talk.deadline:
            yield talk, talk.give_up()
