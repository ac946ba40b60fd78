"""The next worker with an interpreter of its own, made ready while the current one builds and nothing is timed."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Prepare
from steelyard.engine.place import Place
from steelyard.engine.plan import Job

PATIENCE = 120.0


@dataclass
class SpareWorker:
    """A worker that imports what its first job will need, and wakes its device; when that is done it waits."""

    place: Place
    backend: str
    device: str
    talk: Conversation
    lost: bool = False

    @classmethod
    def begin(cls, job: Job, mark: str) -> SpareWorker:
        """Start it; nothing is waited for."""
        case = job.case
        talk = Conversation(start_fresh(job.place, mark))
        talk.ask(Prepare(case.backend, case.device, job.compiles), PATIENCE)
        return cls(job.place, case.backend, case.device, talk)

    def fits(self, job: Job) -> bool:
        """Whether it is the worker that a job needs."""
        return job.fresh and (job.place, job.case.backend, job.case.device) == (self.place, self.backend, self.device)

    def settle(self) -> None:
        """Wait until it waits: from here on it disturbs nothing."""
        for answer in self.talk.answers():
            self.lost = self.lost or isinstance(answer, Lost)
