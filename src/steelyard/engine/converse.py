"""The conductor's side of a dialect's own job: a worker of its own, everything it says as it says it, and a word on how it was lost."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.engine.launch import Ending, Place, Worker, start_fresh
from steelyard.engine.process import end_orphans, end_tree, keep_orphans, kernel_oom_kills
from steelyard.errors import UsageError
from steelyard.machine import locks
from steelyard.model.record import Status
from steelyard.model.units import plain as quantity

KILLED = -9
LONGEST_START = 300.0
"""Seconds until a new worker says its first word: a framework may have to be read from a slow disk."""

Message = dict[str, Any]


@dataclass
class Talk:
    """A worker that does jobs of one dialect, started when it is first needed and again after it was lost."""

    place: Place
    mark: str
    timeout: float | None = None
    worker: Worker | None = None
    stderr: str = ""

    def ask(self, job: Mapping[str, Any]) -> Iterator[Message]:
        """Everything the worker says about a job, up to its end.

        A worker that does not come back ends it with `{"lost": {"status": …, "reason": …}}`, which is for the caller to blame
        on what had begun; the next job starts a new one. `timeout` is for silence, so a job must tell what it begins. Where
        the worker waits at its gate, it goes on when the caller asks for its next message.
        """
        if self.worker is None:
            self.worker = start_fresh(self.place, self.mark)
        self.worker.send(job)
        for message in self._messages(self.worker, kernel_oom_kills()):
            if isinstance(message.get("error"), dict):
                told = {key: str(message["error"].get(key, "")) for key in ("what", "why", "do", "where")}
                raise UsageError(told.pop("what"), **told)
            if "ready" in message:
                self.worker.send({"do": "go"})
            elif "done" in message:
                end_tree(self.worker.pid, itself=False)
                return
            else:
                yield message

    def _messages(self, worker: Worker, kills: int) -> Iterator[Message]:
        heard, limit = time.monotonic(), None if self.timeout is None else max(LONGEST_START, self.timeout)
        while True:
            left = None if limit is None else heard + limit - time.monotonic()
            if left is not None and left <= 0:
                yield self._lost(worker.stop(), "timeout", f"no answer within {quantity(limit or 0.0, 's')}")
                return
            for message in worker.messages(left):
                if message is None:
                    worker.see_off()
                    ending = worker.stop()
                    killed = ending.code == KILLED and kernel_oom_kills() > kills
                    reason = "the system ran out of memory and ended the worker" if killed else _last_words(ending)
                    yield self._lost(ending, "oom" if killed else "crashed", reason)
                    return
                yield message
                heard, limit = time.monotonic(), self.timeout

    def _lost(self, ending: Ending, status: Status, reason: str) -> Message:
        self.worker, self.stderr = None, ending.stderr
        end_orphans(self.mark, ())
        return {"lost": {"status": status, "reason": reason}}

    def retire(self) -> None:
        """End the worker, which can or shall do no more; the next job gets a new one."""
        if self.worker:
            worker, self.worker = self.worker, None
            self.stderr = worker.stop().stderr
            end_orphans(self.mark, ())

    def leave(self) -> None:
        """Let an idle worker go."""
        if self.worker:
            worker, self.worker = self.worker, None
            end_tree(worker.pid, itself=False)
            worker.leave()
            worker.see_off()
            self.stderr = worker.wait().stderr


def _last_words(ending: Ending) -> str:
    last = next((line.strip() for line in reversed(ending.stderr.splitlines()) if line.strip()), "")
    return f"the worker {ending}" + (f"; last words: {last[:200]}" if last else "")


@contextlib.contextmanager
def talking(
    devices: Sequence[str] = (),
    waiting: Callable[[str], None] = lambda text: None,
    timeout: float | None = None,
    place: Place | None = None,
) -> Iterator[Talk]:
    """A talk that has the CPUs, and the devices named, for itself, and that leaves nothing running however it ends."""
    owner = f"steelyard as, pid {os.getpid()}"
    with locks.hold([*locks.cpu_names(), *devices], owner, lambda who: waiting(f"waiting for {who}, which measures on this machine")):
        talk = Talk(place or Place(), uuid.uuid4().hex, timeout)
        keep_orphans()
        try:
            yield talk
            talk.leave()
        finally:
            talk.retire()
            end_orphans(talk.mark, ())
            keep_orphans(False)
