"""The conductor's side of a dialect's own job: a worker of its own, everything it says as it says it, and a word on how it was lost."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Said, Shim, Sources
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans, end_tree, keep_orphans
from steelyard.errors import UsageError
from steelyard.machine import locks

LONGEST_START = 300.0
"""Seconds until a new worker says its first word: a framework may have to be read from a slow disk."""

Words = dict[str, Any]


@dataclass
class Talk:
    """A worker that does jobs of one dialect, started when it is first needed and again after it was lost."""

    place: Place
    mark: str
    timeout: float | None = None
    talk: Conversation | None = None
    stderr: str = ""

    def ask(self, job: Mapping[str, Any]) -> Iterator[Words]:
        """Everything the worker says about a job, up to its end.

        A worker that does not come back ends it with `{"lost": {"status": …, "reason": …}}`, which is for the caller to blame
        on what had begun; the next job starts a new one. `timeout` is for silence, so a job must tell what it begins. Where
        the worker waits at its gate, it goes on when the caller asks for what it says next.
        """
        sources = Sources(tuple(job.get("files", ())), tuple(map(tuple, job.get("entries", ()))), tuple(job.get("paths", ())))
        if self.talk is None:
            self.talk = Conversation(start_fresh(self.place, self.mark))
        talk = self.talk
        talk.ask(Shim(sources, job["shim"], job), self.timeout, LONGEST_START)
        for answer in talk.answers():
            if isinstance(answer, Said):
                yield dict(answer.words)
            elif isinstance(answer, Lost):
                self.talk, self.stderr = None, answer.stderr
                end_orphans(self.mark, ())
                if answer.fault:
                    raise UsageError(answer.fault.what, why=answer.fault.why, do=answer.fault.do, where=answer.fault.where)
                yield {"lost": {"status": answer.status, "reason": answer.reason}}
                return
        end_tree(talk.worker.pid, itself=False)

    def retire(self) -> None:
        """End the worker, which can or shall do no more; the next job gets a new one."""
        if self.talk:
            talk, self.talk = self.talk, None
            self.stderr = talk.worker.stop().stderr
            end_orphans(self.mark, ())

    def leave(self) -> None:
        """Let an idle worker go."""
        if self.talk:
            worker, self.talk = self.talk.worker, None
            end_tree(worker.pid, itself=False)
            worker.leave()
            worker.see_off()
            self.stderr = worker.wait().stderr


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
