"""The next worker with a fresh interpreter, made ready while the current one builds and nothing is timed."""

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
    """A worker that imports what its first job needs, wakes its device, and then waits."""

    place: Place
    backend: str
    device: str
    talk: Conversation
    lost: bool = False

    @classmethod
    def begin(cls, job: Job, mark: str) -> SpareWorker:
        """Start the worker without waiting for it."""
        case = job.case
        talk = Conversation(start_fresh(job.place, mark))
        talk.ask(Prepare(case.backend, case.device, job.compiles), PATIENCE)
        return cls(job.place, case.backend, case.device, talk)

    def fits(self, job: Job) -> bool:
        """Whether this is the worker that a job needs."""
        return job.fresh and (job.place, job.case.backend, job.case.device) == (self.place, self.backend, self.device)

    def settle(self) -> None:
        """Wait until the worker is ready and idle, so that it no longer disturbs timing."""
        for answer in self.talk.answers():
            self.lost = self.lost or isinstance(answer, Lost)
