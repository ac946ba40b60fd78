"""Supervises a run: measures one case after another, assigns every fault to the case that ran, saves every answer at once."""

from __future__ import annotations

import itertools
import os
import shlex
import string
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from steelyard import registry
from steelyard.engine import after, compiling, lockstep, modules, witnesses
from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Crew
from steelyard.engine.driving import result_of
from steelyard.engine.keeping import ResultKeeper
from steelyard.engine.messages import PairAnswer, RecordAnswer
from steelyard.engine.monitoring import RunMonitor, monitored
from steelyard.engine.phases import PAIRS, with_phase
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import NoComparison
from steelyard.engine.roofs import Roofs, under_roof
from steelyard.engine.sinks import Sink
from steelyard.machine import locks
from steelyard.model.experiment import Settings
from steelyard.model.record import UNWEIGHED, UNWEIGHED_OTHERS, WEIGHED, Record, Status
from steelyard.store import sources
from steelyard.store.runs import RunWriter
from steelyard.store.samples import read_all

LONGEST_OWNER = 180
"""Most characters in a lock's file, which other runs read."""
MOST_AT_ONCE = 2000
"""Cases in one job: their worker is prepared for timing once for all of them."""
LETTERS = string.ascii_lowercase + "_"


class RunWatch(Protocol):
    """The interface for progress: on a terminal, as lines in a log, or none."""

    def started(self, case_id: str) -> None: ...
    def phase(self, name: str, fraction: float | None) -> None: ...
    def finished(self, record: Record) -> None: ...
    def waiting(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...


class NoWatch:
    """No progress, as when called from a script."""

    def started(self, case_id: str) -> None: ...
    def phase(self, name: str, fraction: float | None) -> None: ...
    def finished(self, record: Record) -> None: ...
    def waiting(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...


class WaitTold(NoWatch):
    """Progress for sinks that print all else themselves: only that another run has the machine."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def waiting(self, text: str) -> None:
        self.tell(text)


def owner_words(run: str, command: Sequence[str], created: str) -> str:
    """The message for runs that wait for this machine: which run has it, its process, since when, and its command."""
    begun = f", since {created[11:16]} UTC" if len(created) > 15 else ""
    asked = shlex.join(command)
    return f"run {run}, pid {os.getpid()}{begun}{f': {asked}' if asked else ''}"[:LONGEST_OWNER]


def supervise(
    plan: Plan,
    writer: RunWriter,
    watch: RunWatch,
    roofs: Roofs,
    *,
    stop: Callable[[Record], bool] = lambda record: False,
    sink: Sink | None = None,
) -> bool:
    """Measure every job that the run does not have yet; each record is compared with the machine's roofs, and the caller seals the run.

    Calls are all checked first, and those that cannot run are saved and reported before any other is timed. Returns whether
    all were measured: the first record for which `stop` is true is the last.
    """
    sink = sink or Sink()
    sink.planned(plan.rows)
    todo = [job for job in plan.jobs if not is_done(job, writer)]
    if not todo and not any(is_due(job, writer) for job in plan.pairs) and not sink.replayed:
        return True
    owner = owner_words(writer.id, writer.header.command, writer.header.created)
    told = sources.told(plan.sources, writer.done.values())
    with monitored(todo, plan.settings) as monitor:
        for jobs in [[job] for job in todo] if sink.yielding else [todo]:
            with locks.hold(places_of(jobs or plan.jobs), owner, lambda who: watch.waiting(f"waiting for the machine, in use by {who}")):
                monitor.begin()
                sink.opened(writer.path)
                try:
                    with Crew.assemble(watch.phase) as crew:
                        crew.heard = sink.printed
                        if any(map(stop, Supervision(plan, writer, watch, crew, sink, roofs, told, monitor).records(jobs))):
                            crew.abandon()
                            return False
                finally:
                    sink.released()
    return True


NONE_UNMADE: Mapping[str, str] = {}


@dataclass
class Supervision:
    """A run while it is measured: its plan, its crew of workers, and where results are kept."""

    plan: Plan
    writer: ResultKeeper
    watch: RunWatch
    crew: Crew
    sink: Sink
    roofs: Roofs
    told: dict[str, str]
    """The users' files that records have reported, each with its last hash."""
    monitor: RunMonitor
    waiting: list[list[Job]] = field(default_factory=list)
    """The listed pairs that are still to be compared; those that follow each other in one row and share a base, together."""

    def records(self, todo: Sequence[Job]) -> Iterator[Record]:
        """Yield the record of each job once it is kept; cases that share a base are compared together, after the last of them."""
        if self.plan.experiment.script:
            yield from self._drive()
            return
        self._replay()
        todo = [job for job in todo if not self.sink.held(job)]
        pairs = [job for job in self.plan.pairs if not _compared(job, self.writer) and not self.sink.held_pair(job)]
        self.waiting = [list(group) for _, group in itertools.groupby(pairs, lambda job: (job.scale, job.label))]
        first = {name for name, item in registry.built_ins().workloads.items() if item.examine and not item.opens}
        calls = [job for job in todo if job.case.workload in first and job.case.id not in self.writer.done]
        wrong = self.crew.check(self.plan, calls)
        refused = [self._refuse(job, wrong[job.case.id]) for job in todo if job.case.id in wrong]
        self.sink.checked()
        self._weigh_due()
        yield from refused
        left = [job for job in todo if job.case.id not in wrong]
        unanswered = witnesses.ask(left, self.plan, self.crew, self.watch.note)
        yield from [self._refuse(job, why, "unsupported") for job in left if (why := unanswered.get(job.case.id))]
        left = [job for job in left if job.case.id not in unanswered]
        yield from self._in_batches(left) if self.plan.settings.fixed and not self.plan.comparisons else self._one_by_one(left)

    def _drive(self) -> Iterator[Record]:
        """Yield the record of each case that a user's script measures; the script gets existing results of the run at once."""
        [job] = self.plan.jobs
        done = self.writer.done.values()
        held = {record.id: result_of(record, read_all(self.writer.path, record.samples)).plain() for record in done}
        for case, answer in self.crew.drive(job, self.plan, self.sink, held):
            record = self._keep(replace(job, case=case), answer)
            self.watch.finished(record)
            yield record

    def _replay(self) -> None:
        """Send the sink the existing results of the run, which its own file may lack."""
        for job in self.plan.jobs if self.sink.replayed else ():
            if (record := self.writer.done.get(job.case.id)) and not self.sink.held(job):
                self.sink.take(job, record, read_all(self.writer.path, record.samples))
        for pair in self.writer.pairs if self.sink.replayed else ():
            self.sink.weighed(pair)

    def _weigh_due(self) -> None:
        """Compare the listed pairs whose cases are all measured by now, and note why for each that cannot be compared."""
        done = self.writer.done
        waiting, self.waiting, due = self.waiting, [], list[list[Job]]()
        for group in waiting:
            whole = all({job.case.id, job.vs.id} <= done.keys() for job in group if job.vs)
            (due if whole else self.waiting).append(group)
        for group in due:
            sound = []
            for job in group:
                if bad := [done[case.id] for case in (job.vs, job.case) if case and done[case.id].status != "ok"]:
                    self._give_up(job, f"{bad[0].id} is {bad[0].status}")
                else:
                    sound.append(job)
            pairs, trouble = self._weigh_apart(sound[0]) if sound and sound[0].side else self.crew.weigh(sound, self.plan)
            for answer in self._compiled(pairs, sound):
                self.writer.append_pair(answer.pair, answer.arrays)
                self.sink.weighed(answer.pair)
            for job in sound:
                if not _compared(job, self.writer):
                    self._give_up(job, trouble or "it gave no answer")

    def _give_up(self, job: Job, reason: str) -> None:
        assert job.vs is not None
        self.watch.note(f"not weighed: {job.case} against {job.vs}: {reason}")
        self.sink.unweighed(job, reason)

    def _one_by_one(self, left: Sequence[Job]) -> Iterator[Record]:
        heads: list[Job] = []
        coming = _coming(left)
        for number, (job, following) in enumerate(zip(left, [*left[1:], None], strict=False)):
            self.crew.coming = coming[number]
            self.watch.started(job.case.id)
            last = following is None or following.scale != job.scale
            record, pairs = self._measure(job, heads if last else None)
            heads = [] if last else [*heads, *([job] if job.vs and not job.side and record.status == "ok" else [])]
            for answer in pairs:
                self.writer.append_pair(answer.pair, answer.arrays)
                self.sink.weighed(answer.pair)
            self._weigh_due()
            self.watch.finished(record)
            yield record

    def _in_batches(self, left: Sequence[Job]) -> Iterator[Record]:
        """Measure many small cases in one job, and keep each as it comes; a job ends where a comparison is due.

        A pass needs a worker that does nothing else, so if passes follow, a job is one case and all its answers are read first.
        """
        alone = any(after.wanted(self.plan))
        for jobs in self._batches(left):
            most = 1 if alone else len(jobs) if self.sink.whole else MOST_AT_ONCE
            for begin in range(0, len(jobs), most):
                answers = self.crew.measure(jobs[begin : begin + most], self.plan, self.sink)
                for job, answer in list(answers) if alone else answers:
                    record = self._keep(job, answer)
                    self.watch.finished(record)
                    yield record
            self._weigh_due()

    def _batches(self, left: Sequence[Job]) -> Iterator[list[Job]]:
        """Yield batches of jobs for one worker; a batch ends after the last case of a group of pairs."""
        places = {job.case.id: place for place, job in enumerate(left)}
        ends = {max(places.get(case.id, -1) for job in group for case in (job.case, job.vs) if case) for group in self.waiting}
        batch: list[Job] = []
        for place, job in enumerate(left):
            if batch and (place - 1 in ends or (job.unit, job.place) != (batch[0].unit, batch[0].place)):
                yield batch
                batch = []
            batch.append(job)
        yield from [batch] if batch else []

    def _refuse(self, job: Job, reason: str, status: Status = "failed") -> Record:
        self.watch.started(job.case.id)
        where = f"{job.origin}  {job.label.replace('|', ' ', 1)}: " if job.label else ""
        record = self.writer.append(failure(job, self.plan.settings, status, where + reason))
        self.sink.refused(job, reason)
        self.watch.finished(record)
        return record

    def _measure(self, job: Job, heads: Sequence[Job] | None) -> tuple[Record, list[PairAnswer]]:
        """Measure a case and keep its record; return it with the comparisons that are due."""
        if kept := self.writer.done.get(job.case.id):
            pairs, unmade = self._compare(job, kept.status, heads)
            for id, why in unmade.items():
                self.watch.note(f"not weighed: {id}: {why}")
            return kept, pairs
        [(_, answer)] = self.crew.measure([job], self.plan, self.sink)
        status = answer.record.status if isinstance(answer, RecordAnswer) else answer.status
        began = time.monotonic()
        pairs, unmade = self._compare(job, status, heads)
        if pairs and isinstance(answer, RecordAnswer):
            own = compiling.with_figures(answer.record, [found.pair for found in pairs])
            record = with_phase(own, PAIRS, time.monotonic() - began)
            answer = replace(answer, record=replace(record, effective={**record.effective, WEIGHED: len(pairs)}))
        return self._keep(job, answer, unmade), pairs

    def _keep(self, job: Job, answer: RecordAnswer | Lost, unmade: Mapping[str, str] = NONE_UNMADE) -> Record:
        """Write a case's record with all that belongs to it, to the store first; `unmade` is what prevented comparisons, by case.

        The records of other cases are already written, so this one has the reasons for theirs too.
        """
        log = ""
        if isinstance(answer, Lost):
            log = answer.stderr
            answer = RecordAnswer(failure(job, self.plan.settings, answer.status, answer.reason), {}, {})
        record = answer.record
        own, others = unmade.get(job.case.id), {id: why for id, why in unmade.items() if id != job.case.id}
        more = ({UNWEIGHED: own} if own else {}) | ({UNWEIGHED_OTHERS: others} if others else {})
        record = replace(record, effective={**record.effective, **more}) if more else record
        if log:
            kept = self.writer.attach("stderr", f"{len(self.writer.done) + 1}.txt", log.encode())
            record = replace(record, attachments=[*record.attachments, kept])
        record = after.complete(record, job, self.plan, self.crew, self.writer)
        record = modules.noted(record, answer.modules, self.told)
        record = self.writer.append(under_roof(self.monitor.noted(record), self.roofs), answer.arrays)
        self.sink.take(job, record, answer.arrays)
        return record

    def _compare(self, job: Job, status: Status, heads: Sequence[Job] | None) -> tuple[list[PairAnswer], dict[str, str]]:
        """Make the comparisons that are due after a case; return them, and why others failed. Without `heads` more cases follow."""
        own = [job] if job.vs and status == "ok" and not _compared(job, self.writer) else []
        due = own if job.side else [*heads, *own] if heads is not None else []
        if not due:
            return [], {}
        if job.side:
            pairs, trouble = self._weigh_apart(job)
        else:
            wrong = self._broken_base(due[0])
            pairs, trouble = ([], wrong) if wrong else self.crew.weigh(due, self.plan)
        pairs = self._compiled(pairs, due)
        made = {answer.pair.head.id for answer in pairs}
        return pairs, {each.case.id: trouble or "it gave no answer" for each in due if each.case.id not in made}

    def _compiled(self, pairs: Sequence[PairAnswer], jobs: Sequence[Job]) -> list[PairAnswer]:
        """The comparisons with the compile times of their arms, if these are to be measured."""
        by_head = {job.case.id: job for job in jobs}
        return [compiling.with_compiles(answer, by_head[answer.pair.head.id], self.plan, self.crew) for answer in pairs]

    def _broken_base(self, job: Job) -> str:
        """Why a base is not tried again: it was measured and is not ok; empty otherwise."""
        base = self.writer.done.get(job.vs.id) if job.vs and job.vs != job.case else None
        return f"the base ({base.id}) is {base.status}: {base.reason}" if base is not None and base.status != "ok" else ""

    def _weigh_apart(self, job: Job) -> tuple[list[PairAnswer], str]:
        """Compare a case with the other side in separate processes."""
        self.crew.see_off()
        self.crew.calm()
        if wrong := self._broken_base(job):
            return [], wrong
        try:
            return [PairAnswer(*lockstep.weigh(self.crew.pool, job, self.plan, self.crew.tell))], ""
        except NoComparison as error:
            return [], str(error)


def _coming(jobs: Sequence[Job]) -> list[Job | None]:
    """For each job the next one that needs a different worker."""
    found: list[Job | None] = []
    for job in reversed(jobs):
        after = found[-1] if found else None
        follower = jobs[len(jobs) - len(found)] if found else None
        other = follower is not None and (follower.unit, follower.place) != (job.unit, job.place)
        found.append(follower if other else after)
    return found[::-1]


def places_of(jobs: Iterable[Job]) -> list[str]:
    """The locks that these jobs need: every CPU we may use if one of them is timed on the host; otherwise the accelerator, and as
    many CPUs as drive it, different ones for each accelerator. A virtual clock needs none."""
    real = [job for job in jobs if not registry.about_backend(job.case.backend).virtual]
    devices = {f"{job.case.device}{job.place.device_index or 0}" for job in real if job.case.device != "cpu"}
    names, threads = locks.cpu_names() if real else [], max((job.case.threads * job.case.ranks for job in real), default=0)
    if not devices or any(job.case.device == "cpu" for job in real) or len(devices) * threads >= len(names):
        return [*names, *sorted(devices)]
    first = min(int(digits) if (digits := device.lstrip(LETTERS)).isdigit() else 0 for device in devices) * threads
    return [*(names[(first + number) % len(names)] for number in range(len(devices) * threads)), *sorted(devices)]


def is_done(job: Job, writer: ResultKeeper) -> bool:
    """Whether a run has a job's record, and its comparison if that can be made."""
    record = writer.done.get(job.case.id)
    return record is not None and (job.vs is None or record.status != "ok" or _compared(job, writer))


def is_due(job: Job, writer: ResultKeeper) -> bool:
    """Whether a listed pair is still to be compared, and both of its cases are ok."""
    both = [writer.done.get(case.id) for case in (job.case, job.vs) if case]
    return all(record is not None and record.status == "ok" for record in both) and not _compared(job, writer)


def _compared(job: Job, writer: ResultKeeper) -> bool:
    return any(pair.head.id == job.case.id and (job.vs is None or pair.base.id == job.vs.id) for pair in writer.pairs)


def failure(job: Job, settings: Settings, status: Status, reason: str) -> Record:
    """The record of a case whose worker could not write one."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Record(id=job.case.id, case=job.case.plain(), status=status, reason=reason, requested=settings.plain(), started=now)
