"""Supervising a run: one worker at a time, every fault blamed on the case that ran, every answer saved at once."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from steelyard import codec
from steelyard.engine import after, envs, lockstep, modules
from steelyard.engine.after import Reply
from steelyard.engine.launch import Ending, Nursery, Place, Worker, nursery_modules, start_fresh
from steelyard.engine.limits import WATCH_EVERY, MemoryLimit
from steelyard.engine.plan import Entries, Job, Plan
from steelyard.engine.pool import Pool, Unweighed
from steelyard.engine.process import end_orphans, end_tree, keep_orphans, kernel_oom_kills
from steelyard.engine.shapes import CALL
from steelyard.errors import SteelyardError, StoreError, UsageError, told
from steelyard.machine import locks
from steelyard.model.experiment import Settings
from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Attachment, Record, Status
from steelyard.model.units import plain as quantity
from steelyard.store import sources
from steelyard.store.runs import RunWriter

VIRTUAL = frozenset({"fake"})
PATIENCE = 60


class Unstarted(SteelyardError):
    """No worker can be started in the place of a job; that costs the cases of this place alone."""


class Watch(Protocol):
    """Who looks on: progress on a terminal, lines in a log, nobody."""

    def started(self, case_id: str) -> None: ...
    def phase(self, name: str, fraction: float | None) -> None: ...
    def finished(self, record: Record) -> None: ...
    def waiting(self, text: str) -> None: ...


@dataclass
class Answer:
    """What one job gave: a record, perhaps a pair, and their raw samples."""

    expected: str
    record: Record | None = None
    arrays: Arrays = field(default_factory=dict)
    pairs: list[tuple[Pair, Arrays]] = field(default_factory=list)
    phase: str = "start"
    stderr: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    checked: list[Mapping[str, Any]] = field(default_factory=list)
    files: list[Mapping[str, Any]] = field(default_factory=list)


def supervise(
    plan: Plan,
    writer: RunWriter,
    watch: Watch,
    judge: Callable[[Record], Record] = lambda record: record,
    *,
    stop: Callable[[Record], bool] = lambda record: False,
) -> bool:
    """Measure every job that the run does not hold yet; `judge` sees each record before it is kept, and the caller seals the run.

    Calls are all checked first, and those that cannot run are kept and told before any other is timed. The answer is whether
    it came to the end: the first record at which `stop` says so is the last.
    """
    todo = [job for job in plan.jobs if not _done(job, writer)]
    if not todo:
        return True
    names = _places(todo)
    owner = f"run {writer.id}, pid {os.getpid()}"
    with (
        locks.hold(names, owner, lambda who: watch.waiting(f"waiting for {who}, which measures on this machine")),
        Crew.assemble(watch) as crew,
    ):
        wrong = crew.check(plan, [job for job in todo if job.case.id not in writer.done])
        refused = [_refuse(job, wrong[job.case.id], plan, writer, watch) for job in todo if job.case.id in wrong]
        if any(map(stop, refused)):
            return False
        todo = [job for job in todo if job.case.id not in wrong]
        heads: list[Job] = []
        told_files = sources.told(plan.sources, writer.done.values())
        for job, following in zip(todo, [*todo[1:], None][: len(todo)], strict=True):
            watch.started(job.case.id)
            kept, last = writer.done.get(job.case.id), following is None or following.scale != job.scale
            settled = kept if job.side or not last else None
            answer = Answer(job.case.id, settled) if settled else crew.measure(job, plan, heads if last else None)
            if job.side and answer.record and answer.record.status == "ok":
                crew.weigh_apart(job, plan, answer, writer.done.get(job.vs.id if job.vs else ""))
            record = answer.record or failure(job, plan.settings, "crashed", "the worker ended the job without an answer")
            if answer.stderr and record.status != "ok":
                log = writer.attach("stderr", f"{len(writer.done) + 1}.txt", answer.stderr.encode())
                record = _with_attachment(record, log)
            if job.case.id not in writer.done:
                record = modules.noted(after.complete(record, job, plan, crew, writer), answer.modules, told_files)
                record = writer.append(judge(record), answer.arrays)
            heads = [] if last else [*heads, *([job] if job.vs and not job.side and record.status == "ok" else [])]
            for pair, arrays in answer.pairs:
                writer.append_pair(pair, arrays)
            watch.finished(record)
            if stop(record):
                return False
    return True


def _refuse(job: Job, reason: str, plan: Plan, writer: RunWriter, watch: Watch) -> Record:
    watch.started(job.case.id)
    record = writer.append(failure(job, plan.settings, "failed", reason))
    watch.finished(record)
    return record


def _places(jobs: Iterable[Job]) -> list[str]:
    """What these jobs need for themselves: every CPU we may use, and the accelerator; a virtual clock needs nothing."""
    real = [job for job in jobs if job.case.backend not in VIRTUAL]
    devices = {f"{job.case.device}{job.place.device_index or 0}" for job in real if job.case.device != "cpu"}
    return [*(locks.cpu_names() if real else ()), *sorted(devices)]


def _done(job: Job, writer: RunWriter) -> bool:
    record = writer.done.get(job.case.id)
    if record is None:
        return False
    compared = any(pair.head.id == job.case.id for pair in writer.pairs)
    return job.vs is None or compared or record.status != "ok"


def _unweighed(record: Record, reason: str) -> Record:
    """A case whose own figures stand, but whose comparison could not be made."""
    return replace(record, effective={**record.effective, "unweighed": reason})


def _whose(job: Job) -> str:
    """Where the file that a case comes from has it, and what it is called there."""
    return f"{job.origin}  {job.label.replace('|', ' ', 1)}: " if job.label else ""


def _with_attachment(record: Record, attachment: Attachment) -> Record:
    return replace(record, attachments=[*record.attachments, attachment])


@dataclass
class Crew:
    """The worker now in use, and the nurseries that can give the next one quickly."""

    mark: str
    watch: Watch | None = None
    oom_kills: int = 0
    nurseries: dict[tuple[Place, tuple[str, ...]], Nursery] = field(default_factory=dict)
    interpreters: dict[str, str] = field(default_factory=dict)
    worker: Worker | None = None
    serving: tuple[str, Place] | None = None
    leaving: Worker | None = None
    spare: Worker | None = None
    limit: MemoryLimit | None = None
    pool: Pool = field(default_factory=Pool)

    @classmethod
    @contextlib.contextmanager
    def assemble(cls, watch: Watch | None = None) -> Iterator[Crew]:
        """A crew that leaves nothing running, however the run ends."""
        crew = cls(uuid.uuid4().hex, watch, kernel_oom_kills())
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

    def measure(self, job: Job, plan: Plan, heads: Sequence[Job] | None = None) -> Answer:
        """Run one job on a fitting worker; if the worker does not survive, the case is to blame.

        A failure on an accelerator may have broken the device for its process, which therefore does nothing more.
        `heads` are cases measured before that share its base: all are weighed together, unless it is None and they wait.
        """
        settings = plan.settings
        try:
            worker = self.engage(job, settings)
        except Unstarted as error:
            return Answer(job.case.id, failure(job, settings, "crashed", str(error)))
        weighing = {} if job.vs is None or job.side or heads is None else plan.weighing(job, heads)
        worker.send({"do": "case", **weighing, **plan.message(job)})
        if settings.isolate == "case" and not job.fresh:
            self._keep_spare(job)
        self.see_off()
        answer, kills = Answer(job.case.id), self.limit.kills() if self.limit else 0
        fate = self._listen(worker, answer, settings)
        if fate is None:
            end_tree(worker.pid, itself=False)
            if self.limit and answer.record and self.limit.kills() > kills:
                answer.record, answer.pairs = replace(answer.record, status="oom", reason=_over(self.limit, answer)), []
            if job.case.device != "cpu" and answer.record and answer.record.status == "failed":
                self.dismiss()
            return answer
        self.worker, self.serving = None, None
        status, reason, answer.stderr = fate
        reason += _inside(job) if answer.phase == "start" else ""
        if answer.record is None:
            answer.record = failure(job, settings, status, reason)
        elif weighing and not answer.pairs:
            answer.record = _unweighed(answer.record, f"{status}: {reason}")
        self._after_death(worker)
        if heads and "weighing" not in answer.phase and not answer.pairs:
            self._weigh_rest(job, plan, heads, answer)
        return answer

    def _weigh_rest(self, job: Job, plan: Plan, heads: Sequence[Job], answer: Answer) -> None:
        """The last case of several took the worker with it before any was weighed; the others have not deserved that."""
        try:
            worker = self.engage(job, plan.settings)
        except Unstarted:
            return
        worker.send({**plan.message(job), "do": "weigh", **plan.weighing(job, heads)})
        rest = Answer(job.case.id)
        if self._listen(worker, rest, plan.settings) is not None:
            self.worker, self.serving = None, None
            self._after_death(worker)
        answer.pairs = rest.pairs

    def check(self, plan: Plan, jobs: Sequence[Job]) -> dict[str, str]:
        """Why calls cannot run, by case, found without running them; asked of the worker that measures the first of them.

        One that takes the worker with it is left to its own measurement, where it alone is to blame.
        """
        calls = [job for job in jobs if job.case.workload == CALL]
        if not calls:
            return {}
        try:
            worker = self.engage(calls[0], plan.settings)
        except Unstarted:
            return {}
        worker.send({**plan.message(calls[0]), "do": "check", "cases": [job.case.plain() for job in calls]})
        answer = Answer(calls[0].case.id)
        if self._listen(worker, answer, plan.settings) is not None:
            self.worker, self.serving = None, None
            self._after_death(worker)
            return {}
        reasons = {str(fit["case"]): str(fit["wrong"]) for fit in answer.checked if fit["wrong"]}
        return {job.case.id: f"{_whose(job)}{reasons[job.case.id]}" for job in calls if job.case.id in reasons}

    def weigh_apart(self, job: Job, plan: Plan, answer: Answer, base: Record | None) -> None:
        """Weigh a measured case against the other side in processes of their own; what prevents that costs the comparison alone.

        `base` is what the base gave by itself, where that is another case; one that is not ok need not be tried again.
        """
        self.see_off()
        assert answer.record is not None
        if base is not None and base.status != "ok":
            answer.record = _unweighed(answer.record, f"the base ({base.id}) is {base.status}: {base.reason}")
            return
        try:
            answer.pairs = [lockstep.weigh(self.pool, job, plan, self.watch.phase if self.watch else lambda *_: None)]
        except Unweighed as error:
            answer.record = _unweighed(answer.record, str(error))

    def ask(self, job: Job, plan: Plan, message: Mapping[str, Any], *, alone: bool) -> Reply:
        """Have a worker do a pass beside the timing; it does nothing else afterwards, and nothing before if it must be alone."""
        if alone:
            self.dismiss()
            self.see_off()
        try:
            worker = self.engage(job, plan.settings)
        except Unstarted as error:
            return after.reply_of({}, [], f"crashed: {error}")
        worker.send({**plan.message(job), **message})
        self.see_off()
        answer = Answer(job.case.id)
        fate = self._listen(worker, answer, plan.settings)
        if fate is None:
            self.dismiss()
        else:
            self.worker, self.serving = None, None
            self._after_death(worker)
        return after.reply_of(answer.found, answer.files, "" if fate is None else f"{fate[0]}: {fate[1]}")

    def _listen(self, worker: Worker, answer: Answer, settings: Settings) -> tuple[Status, str, str] | None:
        """Wait for the end of the job; anything but a proper end is a status with its reason and the worker's last words."""
        deadline = time.monotonic() + settings.timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                ending = worker.stop()
                return "timeout", f"no answer within {quantity(settings.timeout, 's')} (last seen: {answer.phase})", ending.stderr
            if self.limit and not self.limit.group and self.limit.exceeded(worker.pid):
                ending = worker.stop()
                return "oom", _over(self.limit, answer), ending.stderr
            for message in worker.messages(min(left, WATCH_EVERY) if self.limit and not self.limit.group else left):
                if message is None:
                    return self._autopsy(worker, worker.stop(), answer)
                if isinstance(message.get("error"), dict):
                    told = {key: str(message["error"].get(key, "")) for key in ("what", "why", "do", "where")}
                    return "failed", str(UsageError(told.pop("what"), **told)), worker.stop().stderr
                if "ready" in message:
                    worker.send({"do": "go"})
                try:
                    if self._take(message, answer):
                        return None
                except (StoreError, TypeError, ValueError, AttributeError, KeyError):
                    return "crashed", f"the worker sent something that is not an answer during {answer.phase}", worker.stop().stderr

    def _take(self, message: Mapping[str, Any], answer: Answer) -> bool:
        if "phase" in message:
            answer.phase = str(message["phase"])
            if self.watch:
                self.watch.phase(answer.phase, message.get("fraction"))
        elif "record" in message:
            record = codec.decode(Record, message["record"])
            if record.id != answer.expected:
                raise ValueError(f"an answer for {record.id}")
            answer.record, answer.arrays, answer.modules = record, _arrays(message), dict(message.get("modules", {}))
        elif "pair" in message:
            answer.pairs.append((codec.decode(Pair, message["pair"]), _arrays(message)))
        elif "found" in message:
            answer.found = message["found"]
        elif "checked" in message:
            answer.checked.append(message["checked"])
        elif "attach" in message:
            answer.files.append(message["attach"])
        elif "unweighed" in message and answer.record:
            answer.record = _unweighed(answer.record, str(message["unweighed"]))
        return "done" in message

    def _autopsy(self, worker: Worker, ending: Ending, answer: Answer) -> tuple[Status, str, str]:
        if self.limit and (self.limit.struck() or (ending.code == -9 and self.limit.group)):
            return "oom", _over(self.limit, answer), ending.stderr
        if ending.code == -9 and kernel_oom_kills() > self.oom_kills:
            return "oom", f"the system ran out of memory and ended the worker during {answer.phase}", ending.stderr
        last = next((line.strip() for line in reversed(ending.stderr.splitlines()) if line.strip()), "")
        return "crashed", f"the worker {ending} during {answer.phase}" + (f"; last words: {last[:200]}" if last else ""), ending.stderr

    def _after_death(self, worker: Worker) -> None:
        if worker.nursery:
            worker.nursery.sweep(keep=self._ours())
        end_orphans(self.mark, [*(nursery.process.pid for nursery in self.nurseries.values()), *self._ours()])
        self._release_limit()

    def _ours(self) -> list[int]:
        return [worker.pid for worker in (self.worker, self.leaving, self.spare) if worker]

    def engage(self, job: Job, settings: Settings) -> Worker:
        """The worker for a job: the current one if they belong together, else a new one."""
        key = (job.unit, job.place)
        if self.worker and self.serving == key:
            return self.worker
        self.dismiss()
        if trouble := self._trouble(job.place):
            raise Unstarted(f"no worker could be started{_inside(job)}: {trouble}")
        try:
            self.worker = start_fresh(job.place, self.mark) if job.fresh else self._forked(job)
        except (UsageError, OSError) as error:
            raise Unstarted(f"no worker could be started{_inside(job)}: {told(error)}") from error
        self.serving = key
        if settings.memory:
            self.limit = MemoryLimit.create(settings.memory, f"{os.getpid()}-{self.worker.pid}")
            self.limit.admit(self.worker.pid)
        return self.worker

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
        if self.worker:
            self.see_off()
            worker, self.worker, self.serving = self.worker, None, None
            end_tree(worker.pid, itself=False)
            worker.leave()
            self.leaving = worker
            if self.limit:
                self.see_off()

    def abandon(self) -> None:
        """End a worker in the middle of its case: nobody waits for an answer any more."""
        if self.worker:
            worker, self.worker, self.serving = self.worker, None, None
            worker.stop()
            self._after_death(worker)

    def see_off(self) -> None:
        """Make sure that the worker dismissed last is gone."""
        if self.leaving:
            worker, self.leaving = self.leaving, None
            worker.see_off()
            self._after_death(worker)

    def _release_limit(self) -> None:
        if self.limit:
            self.limit.release()
            self.limit = None


def describe(place: Place, files: tuple[str, ...], entries: Entries) -> dict[str, Any]:
    """What users' files and packages define, asked of a worker, so that the conductor never imports them."""
    with Crew.assemble() as crew:
        worker = start_fresh(place, crew.mark)
        told = {"files": list(files), "entries": [list(entry) for entry in entries], "paths": list(place.paths)}
        worker.send({"do": "describe", **told})
        try:
            return _description(worker, ", ".join([*files, *(name for _, name in entries)]))
        finally:
            worker.stop()


def _description(worker: Worker, what: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for message in worker.messages(deadline - time.monotonic()):
            if message is None:
                raise UsageError(
                    f"could not load {what}", why="the process ended while importing it", do="import it with plain Python to see why"
                )
            if "described" in message:
                found: dict[str, Any] = message["described"]
                return found
            if "error" in message:
                error = message["error"]
                raise UsageError(f"could not load {what}: {error['what']}", why=error["why"], do=error["do"], where=error["where"])
    raise UsageError(f"could not load {what}", why="importing it takes more than two minutes")


def _inside(job: Job) -> str:
    """In which environment a job runs, where it is not our own."""
    name = next((env.name for env in envs.listing() if str(env.python) == job.place.python), "")
    return f" in environment {name}" if name else ""


def failure(job: Job, settings: Settings, status: Status, reason: str) -> Record:
    """The record of a case whose worker could not write one."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Record(id=job.case.id, case=job.case.plain(), status=status, reason=reason, requested=settings.plain(), started=now)


def _arrays(message: Mapping[str, Any]) -> Arrays:
    return {name: (unit, dtype, base64.b64decode(data)) for name, (unit, dtype, data) in message.get("arrays", {}).items()}


def _over(limit: MemoryLimit, answer: Answer) -> str:
    return f"used more than the {quantity(limit.limit, 'B')} it may (held by {limit.kind}) during {answer.phase}"
