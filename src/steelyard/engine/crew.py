"""The workers of a run: which one a job gets, the next kept ready, and nothing left running however it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard.engine import envs
from steelyard.engine.after import Reply
from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.driving import DrivenResult, result_of
from steelyard.engine.launch import Nursery, Worker, nursery_modules, start_fresh
from steelyard.engine.limits import MemoryLimit
from steelyard.engine.messages import (
    Answer,
    Check,
    Drive,
    Fit,
    Found,
    Measure,
    Order,
    PairAnswer,
    Pass,
    Phase,
    Ready,
    RecordAnswer,
    Retire,
    Started,
    Unweighed,
    Weigh,
)
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import Pool
from steelyard.engine.process import end_orphans, end_tree, keep_orphans
from steelyard.engine.sinks import Sink
from steelyard.errors import SteelyardError, UsageError, told
from steelyard.model.case import Case
from steelyard.model.record import Record, Status

PATIENCE = 60
MOST_DRIVES = 100
"""How often a user's script is run again after it lost its worker; each time it gets beyond one more case."""

Tell = Callable[[str, float | None], None]


class Unstarted(SteelyardError):
    """No worker can be started in the place of a job; that costs the cases of this place alone."""


@dataclass
class Crew:
    """The worker now in use, and the nurseries that can give the next one quickly."""

    mark: str
    tell: Tell = lambda phase, fraction: None
    heard: Callable[[str], None] = lambda text: None
    """What a worker that is gone had printed, or the end of that."""
    nurseries: dict[tuple[Place, tuple[str, ...]], Nursery] = field(default_factory=dict)
    interpreters: dict[str, str] = field(default_factory=dict)
    talk: Conversation | None = None
    serving: tuple[str, Place] | None = None
    leaving: Conversation | None = None
    spare: Worker | None = None
    pool: Pool = field(default_factory=Pool)

    @classmethod
    @contextlib.contextmanager
    def assemble(cls, tell: Tell = lambda phase, fraction: None) -> Iterator[Crew]:
        """A crew that leaves nothing running, however the run ends."""
        crew = cls(uuid.uuid4().hex, tell)
        keep_orphans()
        try:
            yield crew
        except BaseException:
            crew.abandon()
            raise
        finally:
            crew.dismiss()
            crew.see_off()
            if crew.spare:
                crew.spare.stop()
            for nursery in crew.nurseries.values():
                nursery.stop()
            crew.pool.close()
            end_orphans(crew.mark, ())
            keep_orphans(False)

    def measure(self, jobs: Sequence[Job], plan: Plan, sink: Sink) -> Iterator[tuple[Job, RecordAnswer | Lost]]:
        """Each job with its answer, as they come, on fitting workers; if a worker does not survive, the case it was at is to blame.

        Jobs belong to one worker. What one leaves undone, because it was lost or should get no more, is for the next.
        """
        left = list(jobs)
        while left:
            before = len(left)
            for job, answer in self._share(tuple(left), plan, sink):
                left.remove(job)
                yield job, answer
            if left and len(left) == before:
                yield left.pop(0), Lost("crashed", "the worker ended the job without an answer")

    def _share(self, jobs: Sequence[Job], plan: Plan, sink: Sink) -> Iterator[tuple[Job, RecordAnswer | Lost]]:
        """What one worker does of some jobs.

        A failure on an accelerator may have broken the device for its process, which therefore does nothing more.
        """
        try:
            talk = self.engage(jobs[0], plan)
        except Unstarted as error:
            yield from ((job, Lost("crashed", str(error))) for job in jobs)
            return
        by_id, retired = {job.case.id: job for job in jobs}, False
        before: Record | None = None
        current: Job | None = jobs[0]
        asked = Measure(
            plan.sources_of(jobs[0]), plan.settings, tuple(job.case for job in jobs), tuple(job.label for job in jobs),
            sink.paused, sink.traces(), tuple(job.rule for job in jobs) if any(job.rule for job in jobs) else (),
        )  # fmt: skip
        spare = plan.settings.isolate == "case" and not jobs[0].fresh
        for answer in self.converse(talk, asked, plan.settings.timeout, (lambda: self._keep_spare(jobs[0])) if spare else None):
            if isinstance(answer, Ready):
                sink.begun(answer.environment)
            elif isinstance(answer, Started) and answer.case in by_id:
                current = by_id[answer.case]
                sink.started(current)
            elif isinstance(answer, Found):
                sink.found(answer)
            elif isinstance(answer, RecordAnswer) and current is not None:
                done, current = current, None
                retired = _spoils(done.case, plan, answer.record.status)
                judged = self._judged(talk, done, _whole(answer, before, done, plan))
                before = judged.record if isinstance(judged, RecordAnswer) else before
                yield done, judged
            elif isinstance(answer, Retire):
                retired = True
            elif isinstance(answer, Lost) and current is not None:
                where = _inside(current) if talk.phase == "start" else ""
                yield current, replace(answer, reason=answer.reason + where)
            elif isinstance(answer, Lost):
                sink.lost(answer.reason)
        if retired and self.talk is talk:
            self.dismiss()

    def _judged(self, talk: Conversation, job: Job, answer: RecordAnswer) -> RecordAnswer | Lost:
        """An answer as it stands: for the case that was asked about, and without anything that the kernel ended meanwhile."""
        if answer.record.id != job.case.id:
            return Lost("crashed", f"the worker answered for {answer.record.id}")
        over = talk.struck()
        return replace(answer, record=replace(answer.record, status="oom", reason=over)) if over else answer

    def drive(self, job: Job, plan: Plan, sink: Sink, held: dict[str, Any]) -> Iterator[tuple[Case, RecordAnswer | Lost]]:
        """Each case that a user's script asks for with its answer.

        A script whose worker does not survive a case is run again, and then `held` has what became of that one too. What is lost
        in its own code, between two cases, is blamed on the script itself.
        """
        for _ in range(MOST_DRIVES):
            try:
                talk = self.engage(job, plan)
            except Unstarted as error:
                yield job.case, Lost("crashed", str(error))
                return
            last = job.case
            for case, answer in self._driven(talk, job, plan, sink, held):
                known = DrivenResult(answer.status, answer.reason) if isinstance(answer, Lost) else result_of(answer.record, answer.arrays)
                last, held[case.id] = case, known.plain()
                yield case, answer
            if self.talk is talk or last == job.case:
                return
        yield job.case, Lost("failed", f"its worker was lost {MOST_DRIVES} times")

    def _driven(
        self, talk: Conversation, job: Job, plan: Plan, sink: Sink, held: dict[str, Any]
    ) -> Iterator[tuple[Case, RecordAnswer | Lost]]:
        """What one worker does of a script, up to its loss."""
        script, current, begun = plan.experiment.script, None, False
        assert script is not None
        asked = Drive(plan.sources_of(job), plan.settings, script.shim, script.file, script.argv, held)
        for answer in self.converse(talk, asked, plan.settings.timeout):
            if isinstance(answer, Ready) and not begun:
                begun = True
                sink.begun(answer.environment)
            elif isinstance(answer, Started) and answer.unplanned is not None:
                current = answer.unplanned
                sink.started(replace(job, case=current))
            elif isinstance(answer, RecordAnswer) and current is not None:
                case, current = current, None
                yield case, self._judged(talk, replace(job, case=case), answer)
                if _spoils(case, plan, answer.record.status):
                    self.abandon()
                    return
            elif isinstance(answer, Retire):
                self.abandon()
                return
            elif isinstance(answer, Lost):
                yield current or job.case, answer

    def weigh(self, heads: Sequence[Job], plan: Plan) -> tuple[list[PairAnswer], str]:
        """Weigh cases that were measured against their common base, and say why where that cannot be done."""
        if not heads:
            return [], ""
        job = heads[-1]
        assert job.vs is not None
        try:
            talk = self.engage(job, plan)
        except Unstarted as error:
            return [], str(error)
        pairs: list[PairAnswer] = []
        trouble = ""
        asked = Weigh(plan.sources_of(job), plan.settings, job.vs, tuple(head.case for head in heads), plan.comparisons)
        for answer in self.converse(talk, asked, plan.settings.timeout):
            if isinstance(answer, PairAnswer):
                pairs.append(answer)
            elif isinstance(answer, Unweighed):
                trouble = answer.reason
            elif isinstance(answer, Lost):
                trouble = "" if pairs else str(answer)
        over = talk.struck()
        return ([], f"oom: {over}") if over else (pairs, trouble)

    def check(self, plan: Plan, jobs: Sequence[Job]) -> dict[str, str]:
        """Why cases cannot run, found without running them; asked of the worker that measures the first of them.

        One that takes the worker with it is left to its own measurement, where it alone is to blame.
        """
        if not jobs:
            return {}
        try:
            talk = self.engage(jobs[0], plan)
        except Unstarted:
            return {}
        found: dict[str, str] = {}
        for answer in self.converse(talk, Check(plan.sources_of(jobs[0]), tuple(job.case for job in jobs)), plan.settings.timeout):
            if isinstance(answer, Lost):
                return {}
            if isinstance(answer, Fit) and answer.wrong:
                found[answer.case] = answer.wrong
        return found

    def ask(self, job: Job, plan: Plan, name: str, scratch: Path, *, alone: bool) -> Reply:
        """Have a worker do a pass beside the timing; it does nothing else afterwards, and nothing before if it must be alone."""
        if alone:
            self.dismiss()
            self.see_off()
        try:
            talk = self.engage(job, plan)
        except Unstarted as error:
            return Reply(trouble=f"crashed: {error}")
        reply = Reply()
        for answer in self.converse(talk, Pass(plan.sources_of(job), plan.settings, job.case, name, str(scratch)), plan.settings.timeout):
            if isinstance(answer, Found):
                reply = Reply(answer)
            elif isinstance(answer, Lost):
                return Reply(trouble=str(answer))
        self.dismiss()
        return reply

    def converse(
        self, talk: Conversation, job: Order, patience: float | None, ahead: Callable[[], None] | None = None
    ) -> Iterator[Answer | Lost]:
        """Everything a worker says about a job; `ahead` is done while it builds, before it may time anything.

        What it started and left running goes with the job, and a worker that is lost is no worker of ours any more.
        """
        talk.ask(job, patience)
        if ahead:
            ahead()
        self.see_off()
        for answer in talk.answers():
            if isinstance(answer, Phase):
                self.tell(answer.name, answer.fraction)
            if isinstance(answer, Lost):
                self.talk, self.serving = None, None
                self._after_death(talk)
            yield answer
        if self.talk is talk:
            end_tree(talk.worker.pid, itself=False)

    def _after_death(self, talk: Conversation) -> None:
        worker = talk.worker
        if printed := worker.wait().stderr.strip():
            self.heard(printed)
        if worker.nursery:
            worker.nursery.sweep(keep=self._ours())
        end_orphans(self.mark, [*(nursery.process.pid for nursery in self.nurseries.values()), *self._ours()])
        if talk.limit:
            talk.limit.release()

    def _ours(self) -> list[int]:
        workers = (self.talk.worker if self.talk else None, self.leaving.worker if self.leaving else None, self.spare)
        return [worker.pid for worker in workers if worker]

    def engage(self, job: Job, plan: Plan) -> Conversation:
        """The worker for a job: the current one if they belong together, else a new one."""
        key = (job.unit, job.place)
        if self.talk and self.serving == key:
            return self.talk
        self.dismiss()
        if trouble := self._trouble(job.place):
            raise Unstarted(f"no worker could be started{_inside(job)}: {trouble}")
        try:
            worker = start_fresh(job.place, self.mark) if job.fresh else self._forked(job)
        except (UsageError, OSError) as error:
            raise Unstarted(f"no worker could be started{_inside(job)}: {told(error)}") from error
        limit = None
        if plan.settings.memory:
            limit = MemoryLimit.create(plan.settings.memory, f"{os.getpid()}-{worker.pid}")
            limit.admit(worker.pid)
        self.talk, self.serving = Conversation(worker, limit), key
        return self.talk

    def _trouble(self, place: Place) -> str:
        """Why the interpreter of an environment does not start, tried once for all its cases; ours does."""
        if place.python not in self.interpreters and place.python != Place().python:
            trial = [place.python, "-c", ""]
            try:
                done = subprocess.run(
                    trial, stdin=subprocess.DEVNULL, capture_output=True, env=place.environment(self.mark), timeout=PATIENCE, check=False
                )
                trouble = f"its interpreter exits with code {done.returncode}" if done.returncode else ""
            except subprocess.TimeoutExpired:
                trouble = f"its interpreter does not answer within {PATIENCE} s"
            except OSError as error:
                trouble = f"its interpreter cannot be run: {error.strerror or error}"
            self.interpreters[place.python] = trouble
        return self.interpreters.get(place.python, "")

    def _forked(self, job: Job) -> Worker:
        nursery = self._nursery(job)
        if self.spare and self.spare.nursery is nursery:
            worker, self.spare = self.spare, None
            return worker
        return nursery.fork()

    def _keep_spare(self, job: Job) -> None:
        """Fork the next worker while this one builds; the worker waits at its gate until that is done."""
        if self.spare is None:
            with contextlib.suppress(UsageError):
                self.spare = self._nursery(job).fork()

    def _nursery(self, job: Job) -> Nursery:
        key = (job.place, nursery_modules(job.case.backend))
        if key in self.nurseries and self.nurseries[key].process.poll() is not None:
            self.nurseries.pop(key).stop()
        if key not in self.nurseries:
            self.nurseries[key] = Nursery(*key, self.mark)
        return self.nurseries[key]

    def dismiss(self) -> None:
        """Let the current worker go, with everything it started; its last milliseconds overlap with the next one's first."""
        if self.talk:
            self.see_off()
            talk, self.talk, self.serving = self.talk, None, None
            end_tree(talk.worker.pid, itself=False)
            talk.worker.leave()
            self.leaving = talk
            if talk.limit:
                self.see_off()

    def abandon(self) -> None:
        """End a worker in the middle of its case: its answer is not wanted any more."""
        if self.talk:
            talk, self.talk, self.serving = self.talk, None, None
            talk.worker.stop()
            self._after_death(talk)

    def see_off(self) -> None:
        """Make sure that the worker dismissed last is gone."""
        if self.leaving:
            talk, self.leaving = self.leaving, None
            talk.worker.see_off()
            self._after_death(talk)


def _spoils(case: Case, plan: Plan, status: Status) -> bool:
    """Whether a case may have broken its device for the process; under a fixed protocol the worker itself looks, and says Retire."""
    return case.device != "cpu" and plan.settings.fixed is None and status == "failed"


def _whole(answer: RecordAnswer, before: Record | None, job: Job, plan: Plan) -> RecordAnswer:
    """An answer with what a worker leaves out of a record."""
    record = answer.record
    last = before if answer.as_before and before else record
    settings = replace(plan.settings, rule=job.rule) if job.rule else plan.settings
    record = replace(record, case=job.case.plain(), requested=settings.plain(), environment=last.environment, source=last.source)
    return RecordAnswer(record, answer.arrays, answer.modules)


def _inside(job: Job) -> str:
    """In which environment a job runs, where it is not our own."""
    name = next((env.name for env in envs.listing() if str(env.python) == job.place.python), "")
    return f" in environment {name}" if name else ""
