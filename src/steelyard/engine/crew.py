"""The workers of a run: chooses one for each job, keeps the next ready, and leaves none running."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine import envs
from steelyard.engine.arms import Reply
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
    Sources,
    Started,
    Unweighed,
    Waiting,
    Weigh,
)
from steelyard.engine.phases import START, with_phase
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import Pool
from steelyard.engine.process import end_orphans, end_tree, keep_orphans
from steelyard.engine.sinks import Sink
from steelyard.engine.spares import SpareWorker
from steelyard.errors import SteelyardError, UsageError, told
from steelyard.model.case import Case
from steelyard.model.record import Record, Status, altered

PATIENCE = 60
MOST_RESTING = 2
CPUS_TO_SPARE = 4
"""CPUs needed to start the next worker ahead: on fewer, its imports would slow down the build and compilation of the current case."""
MOST_DRIVES = 100
"""How often a user's script is run at most if it keeps losing its worker; each run gets past one more case."""

Tell = Callable[[str, float | None], None]


class Unstarted(SteelyardError):
    """No worker can be started at the place of a job; only the cases of this place are lost."""


@dataclass
class Crew:
    """The current worker of a run, and the nurseries that can fork the next one quickly."""

    mark: str
    tell: Tell = lambda phase, fraction: None
    heard: Callable[[str], None] = lambda text: None
    """Called with the last lines printed by a worker that has ended."""
    nurseries: dict[tuple[Place, tuple[str, ...]], Nursery] = field(default_factory=dict)
    interpreters: dict[str, str] = field(default_factory=dict)
    talk: Conversation | None = None
    serving: tuple[str, Place] | None = None
    resting: dict[tuple[str, Place], Conversation] = field(default_factory=dict)
    """Workers that took seconds to start and are kept for later jobs, the most recently used one last."""
    leaving: Conversation | None = None
    spare: Worker | None = None
    coming: Job | None = None
    """The next job that needs another worker than the current one, if known."""
    prepared: SpareWorker | None = None
    losses: int = 0
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
            crew._clear()
            if crew.spare:
                crew.spare.stop()
            for nursery in crew.nurseries.values():
                nursery.stop()
            crew.pool.close()
            end_orphans(crew.mark, ())
            keep_orphans(False)

    def measure(self, jobs: Sequence[Job], plan: Plan, sink: Sink) -> Iterator[tuple[Job, RecordAnswer | Lost]]:
        """Yield each job with its answer as it arrives; if a worker dies, the running case is blamed. The jobs share one kind of worker;
        jobs that one worker leaves undone go to the next.
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
        """Yield the jobs that one worker completes. After a failure on an accelerator the process gets no more jobs, since the device may
        be unusable for it.
        """
        began = time.monotonic()
        try:
            talk = self.engage(jobs[0], plan)
        except Unstarted as error:
            yield from ((job, Lost("crashed", str(error))) for job in jobs)
            return
        by_id, retired = {job.case.id: job for job in jobs}, False
        before: Record | None = None
        current: Job | None = jobs[0]
        waited = 0.0
        asked = Measure(
            plan.sources_of(jobs[0]), plan.settings, tuple(job.case for job in jobs), tuple(job.label for job in jobs),
            sink.paused, sink.traces(), tuple(job.rule for job in jobs) if any(job.rule for job in jobs) else (),
        )  # fmt: skip
        for answer in self.converse(talk, asked, plan.settings.timeout, lambda: self._look_ahead(jobs[0], plan)):
            if isinstance(answer, Ready):
                sink.begun(answer.environment)
            elif isinstance(answer, Started) and answer.case in by_id:
                current, waited = by_id[answer.case], time.monotonic() - began if before is None else 0.0
                sink.started(current)
            elif isinstance(answer, Found):
                sink.found(answer)
            elif isinstance(answer, RecordAnswer) and current is not None:
                done, current = current, None
                retired = _spoils(done.case, plan, answer.record.status)
                judged = self._judged(talk, done, _whole(answer, before, done, plan, waited))
                before = judged.record if isinstance(judged, RecordAnswer) else before
                yield done, judged
            elif isinstance(answer, Retire):
                retired = True
            elif isinstance(answer, Lost) and current is not None:
                self.losses += 1
                answer = answer.understood(registry.about_backend(current.case.backend).refusals)
                where = _inside(current) if talk.phase == "start" and answer.status == "crashed" else ""
                yield current, replace(answer, reason=answer.reason + where)
            elif isinstance(answer, Lost):
                sink.lost(answer.reason)
        if retired and self.talk is talk:
            self.dismiss()

    def _judged(self, talk: Conversation, job: Job, answer: RecordAnswer) -> RecordAnswer | Lost:
        """Return the answer; Lost if it is for another case, and with status oom if the kernel killed a process of the case."""
        if answer.record.id != job.case.id:
            return Lost("crashed", f"the worker sent a record of {answer.record.id}")
        over = talk.struck()
        return replace(answer, record=replace(answer.record, status="oom", reason=over)) if over else answer

    def drive(self, job: Job, plan: Plan, sink: Sink, held: dict[str, Any]) -> Iterator[tuple[Case, RecordAnswer | Lost]]:
        """Yield each case that a user's script measures, with its answer.

        A script whose worker dies in a case is run again, and then `held` has the result of that case too. A worker lost
        in the script's own code, between two cases, is blamed on the script itself.
        """
        for number in range(MOST_DRIVES):
            if number:
                sink.again()
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
        """Yield the cases of a script that one worker completes, until it is lost."""
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
            elif isinstance(answer, Found):
                sink.found(answer)
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
        """Compare measured cases with their common base; returns the pairs, or why there are none."""
        if not heads:
            return [], ""
        job = heads[-1]
        assert job.vs is not None
        self.calm()
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
                trouble = str(answer)
        over = talk.struck()
        return ([], f"oom: {over}") if over else (pairs, trouble)

    def check(self, plan: Plan, jobs: Sequence[Job]) -> dict[str, str]:
        """Return why cases cannot run, by id, without running them; the worker that measures the first of them checks all.

        If a case kills the worker, nothing is returned: when that case is measured, the loss is blamed on it alone.
        """
        if not jobs:
            return {}
        try:
            talk = self.engage(jobs[0], plan)
        except Unstarted:
            return {}
        found: dict[str, str] = {}
        asked = Check(plan.sources_of(jobs[0]), tuple(job.case for job in jobs), brief=True)
        for answer in self.converse(talk, asked, plan.settings.timeout):
            if isinstance(answer, Lost):
                return {}
            if isinstance(answer, Fit) and answer.wrong:
                found[answer.case] = answer.wrong
        return found

    def ask(self, job: Job, plan: Plan, name: str, scratch: Path, *, alone: bool, sources: Sources | None = None) -> Reply:
        """Have a worker do an extra pass; it does nothing else afterwards, and if `alone` nothing before.

        `sources` are what it loads instead of the plan's, as for a base in another checkout.
        """
        self.calm()
        if alone:
            self._clear()
        try:
            talk = self.engage(job, plan)
        except Unstarted as error:
            return Reply(trouble=f"crashed: {error}")
        reply = Reply()
        asked = Pass(sources or plan.sources_of(job), plan.settings, job.case, name, str(scratch))
        for answer in self.converse(talk, asked, plan.settings.timeout):
            if isinstance(answer, Found):
                reply = Reply(answer)
            elif isinstance(answer, Lost):
                return Reply(trouble=str(answer))
        self.dismiss()
        return reply

    def converse(
        self, talk: Conversation, job: Order, patience: float | None, ahead: Callable[[], None] | None = None
    ) -> Iterator[Answer | Lost]:
        """Yield everything a worker sends about a job; `ahead` is called while it builds, before it may time anything.

        Processes that it left running are ended with the job, and a lost worker is removed.
        """
        talk.gated = True
        talk.ask(job, patience)
        if ahead:
            ahead()
        self.see_off()
        for answer in talk.answers():
            if isinstance(answer, Phase):
                self.tell(answer.name, answer.fraction)
            elif isinstance(answer, Waiting):
                began = time.monotonic()
                self.calm()
                if talk.deadline is not None:
                    talk.deadline += time.monotonic() - began
                talk.go()
            if isinstance(answer, Lost):
                self.talk, self.serving = None, None
                self._after_death(talk)
            yield answer
        if self.talk is talk:
            end_tree(talk.worker.pid, itself=False)

    def calm(self) -> None:
        """Wait until the spare worker is idle, since what follows is timed."""
        if self.prepared:
            self.prepared.settle()

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
        prepared = self.prepared.talk if self.prepared else None
        talks = [talk for talk in (self.talk, self.leaving, prepared, *self.resting.values()) if talk]
        return [worker.pid for worker in (*(talk.worker for talk in talks), self.spare) if worker]

    def engage(self, job: Job, plan: Plan) -> Conversation:
        """Return the worker for a job: the current one if it fits, else another one."""
        key = (job.unit, job.place)
        if self.talk and self.serving == key:
            return self.talk
        self._set_aside(plan)
        if key in self.resting and (awake := self._wake(key)):
            return awake
        if trouble := self._trouble(job.place):
            raise Unstarted(f"no worker could be started{_inside(job)}: {trouble}")
        try:
            worker = self._fresh(job) if job.fresh else self._forked(job)
        except (UsageError, OSError) as error:
            raise Unstarted(f"no worker could be started{_inside(job)}: {told(error)}") from error
        limit = None
        if plan.settings.memory:
            limit = MemoryLimit.create(plan.settings.memory, f"{os.getpid()}-{worker.pid}")
            limit.admit(worker.pid)
        self.talk, self.serving = Conversation(worker, limit), key
        return self.talk

    def _trouble(self, place: Place) -> str:
        """Return why the interpreter of an environment does not start, tried once for all its cases; empty if it does, as ours."""
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

    def _fresh(self, job: Job) -> Worker:
        """Return a worker with its own interpreter: the spare one if it fits, else a new one."""
        if self.prepared and self.prepared.fits(job):
            prepared, self.prepared = self.prepared, None
            prepared.settle()
            if not prepared.lost:
                return prepared.talk.worker
        return start_fresh(job.place, self.mark)

    def _rests(self, job: Job) -> bool:
        return (job.unit, job.place) in self.resting

    def _look_ahead(self, job: Job, plan: Plan) -> None:
        """Start the next worker while this one builds; this one waits before timing until that is done.

        If a worker was lost before, the spare one is a replacement for this one, since it may be needed at any time.
        """
        coming = job if self.losses and job.fresh else self.coming
        if self.prepared and (coming is None or not self.prepared.fits(coming)):
            self.prepared.talk.worker.stop()
            self.prepared = None
        wanted = coming is not None and coming.fresh and not self._rests(coming)
        if coming is not None and wanted and self.prepared is None and (os.cpu_count() or 1) >= CPUS_TO_SPARE:
            with contextlib.suppress(UsageError, OSError):
                self.prepared = SpareWorker.begin(coming, self.mark)
        elif plan.settings.isolate == "case" and not job.fresh and self.spare is None:
            with contextlib.suppress(UsageError):
                self.spare = self._nursery(job).fork()

    def _nursery(self, job: Job) -> Nursery:
        key = (job.place, nursery_modules(job.case.backend))
        if key in self.nurseries and self.nurseries[key].process.poll() is not None:
            self.nurseries.pop(key).stop()
        if key not in self.nurseries:
            self.nurseries[key] = Nursery(*key, self.mark)
        return self.nurseries[key]

    def _clear(self) -> None:
        """End all workers with their own interpreters, including resting and spare ones."""
        self.dismiss()
        for key in list(self.resting):
            self._wake(key)
            self.dismiss()
        self.see_off()
        if self.prepared:
            self.prepared.talk.worker.stop()
            self.prepared = None

    def _set_aside(self, plan: Plan) -> None:
        """Make room for another worker; one with its own interpreter is kept if more jobs for it may come.

        Not if its framework never returns device memory, which would leave none for the next worker.
        """
        talk, serving = self.talk, self.serving
        if talk and serving and talk.worker.process and plan.settings.isolate == "shared" and not talk.limit:
            backend, _, device = serving[0].partition("@")
            if device == "cpu" or registry.about_backend(backend).returns:
                self.resting[serving] = talk
                self.talk = self.serving = None
                if len(self.resting) > MOST_RESTING:
                    self._wake(next(iter(self.resting)))
        self.dismiss()

    def _wake(self, key: tuple[str, Place]) -> Conversation | None:
        """Make a resting worker the current one; None if its process has ended."""
        self.talk, self.serving = self.resting.pop(key), key
        if self.talk.worker.ended:
            self.abandon()
        return self.talk

    def dismiss(self) -> None:
        """End the current worker, with everything it started; its last milliseconds overlap with the next one's first."""
        if self.talk:
            self.see_off()
            talk, self.talk, self.serving = self.talk, None, None
            end_tree(talk.worker.pid, itself=False)
            talk.worker.leave()
            self.leaving = talk
            if talk.limit:
                self.see_off()

    def abandon(self) -> None:
        """Kill the current worker in the middle of its case: its answer is no longer needed."""
        if self.talk:
            talk, self.talk, self.serving = self.talk, None, None
            talk.worker.stop()
            self._after_death(talk)

    def see_off(self) -> None:
        """Wait until the worker dismissed last has ended."""
        if self.leaving:
            talk, self.leaving = self.leaving, None
            talk.worker.see_off()
            self._after_death(talk)


def _spoils(case: Case, plan: Plan, status: Status) -> bool:
    """Whether a case may have broken its device for the process; under a fixed protocol the worker itself checks that and sends Retire."""
    return case.device != "cpu" and plan.settings.fixed is None and status == "failed"


def _whole(answer: RecordAnswer, before: Record | None, job: Job, plan: Plan, waited: float) -> RecordAnswer:
    """Return a full record from an answer, with the parts that workers omit; `waited` is the time until the worker could begin."""
    record = answer.record
    last = before if answer.as_before and before else record
    settings = replace(plan.settings, rule=job.rule) if job.rule else plan.settings
    record = altered(record, case=job.case.plain(), requested=settings.plain(), environment=last.environment, source=last.source)
    return RecordAnswer(with_phase(record, START, waited), answer.arrays, answer.modules)


def _inside(job: Job) -> str:
    """Return ` in environment NAME` for a job that runs in one, else an empty string."""
    name = next((env.name for env in envs.listing() if str(env.python) == job.place.python), "")
    return f" in environment {name}" if name else ""
