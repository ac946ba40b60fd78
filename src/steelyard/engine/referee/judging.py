"""Judging candidates by program: one at a time or thousands, each in processes of its own, with nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from steelyard.engine.referee import entries, layouts, ruling
from steelyard.engine.referee.court import CANDIDATE, NURSERY, REPLACED, Court
from steelyard.engine.referee.evidence import Evidence
from steelyard.engine.referee.layouts import plain
from steelyard.engine.referee.needs import names_triton
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.partner import Ended, Forged, Partner, Sabotaged
from steelyard.engine.referee.trial import SERIAL, Hearing, Void, hear
from steelyard.errors import SteelyardError, UsageError, unknown
from steelyard.machine import locks
from steelyard.model.judging import Contract, Problem, Ruling, Submission, Trick

PAIRS = {"cpu": 3}
AHEAD = max(2, min(8, (os.cpu_count() or 1) // 2))
"""Interpreters that are started in advance for coming candidates on a device: each needs seconds of one CPU to load its framework."""
CALM = 1.5
"""A reference that is this many times slower beside a candidate is timed again, alternately with and without the candidate."""
TURNS = 3
"""How often the slowdown must show: a busy machine slows a reference too, but not every time, and not only beside the candidate."""
APART = 5e-3
"""Seconds between the reference's calls without the candidate, about as long as a candidate's turn: a call right after a wait takes longer,
because other programs have used the CPU and its caches."""


def problems(path: str, only: Sequence[str], options: JudgeOptions) -> list[Problem]:
    """Return the problems of a file or folder, with the contract that the options give them."""
    found: list[Problem] = plain.made_by(path, options.inputs, only) if options.inputs else layouts.find(path).problems(path, only)
    fields = {item.name for item in dataclasses.fields(Contract)}
    for name in options.contract:
        if name not in fields:
            raise unknown("part of a contract", name, fields)
    given = {**options.contract, **({"threads": options.threads} if options.threads != 1 else {})}
    return [
        replace(
            problem, contract=replace(problem.contract, **given),
            rtol=problem.rtol if options.rtol is None else options.rtol, atol=problem.atol if options.atol is None else options.atol,
        )
        for problem in found
    ]  # fmt: skip


def judge_all(
    reference: str,
    candidates: Iterable[str],
    options: JudgeOptions,
    only: Sequence[str] = (),
    waiting: Callable[[str], None] = lambda holder: None,
    known: Mapping[str, Ruling] | None = None,
) -> Iterator[Ruling]:
    """Yield the ruling on every candidate for every problem of a reference; a candidate that crashes or hangs affects only its own ruling.

    Candidates may be an iterator; the next one is read when the last has its ruling. `known` has earlier rulings by the digest in their
    facts: they are yielded again, and their candidates are not judged.
    """
    asked = problems(reference, only, options)
    named = candidates if len(asked) == 1 and not isinstance(candidates, Sequence) else list(candidates)
    if isinstance(named, Sequence):
        entries.check_named(named)
    for problem in asked:
        yield from _for_problem(problem, named, options, waiting, known or {})


def _for_problem(
    problem: Problem, named: Iterable[str], options: JudgeOptions, waiting: Callable[[str], None], known: Mapping[str, Ruling]
) -> Iterator[Ruling]:
    """Yield the rulings for one problem; processes are started when the first candidate needs judging, and again if one was lost."""
    entered: Iterable[Submission | Ruling] = entries.entered(named, problem, options)
    entered = list(entered) if isinstance(named, Sequence) else entered
    left = len(entered) if isinstance(entered, list) else None
    with contextlib.ExitStack() as stack:
        bench: JudgeBench | None = None
        for number, each in enumerate(entered):
            digest = str(each.facts[entries.DIGEST]) if isinstance(each, Ruling) else entries.digest(problem, each, options)
            if digest in known:
                yield known[digest]
                continue
            if isinstance(each, Ruling):
                yield each
                continue
            if bench is not None and not bench.sound:
                bench.court.begin_again()
            if bench is None:
                stack.enter_context(_locked(options, waiting))
                ahead = entered if isinstance(entered, list) else [each]
                triton = any(isinstance(item, Submission) and names_triton(item) for item in ahead)
                bench = stack.enter_context(opened(problem, options, triton=triton))
            bench.court.triton = bench.court.triton or names_triton(each)
            bench.court.many = left is None or left > 1
            bench.ready()
            if bench.court.draw_in_parallel():
                bench.calm_again()
            bench.court.make_ready(AHEAD if left is None else min(AHEAD, left - number))
            began, drawn = time.monotonic(), bench.court.drawn
            found = bench.judge(each)
            facts = {
                "seated": bench.court.drawn > drawn, "hardware": bench.court.opening.device_name, entries.DIGEST: digest,
                "took_s": time.monotonic() - began, "ended": datetime.now(UTC).isoformat(),
            }  # fmt: skip
            yield replace(found, facts={**found.facts, **facts})


@contextlib.contextmanager
def _locked(options: JudgeOptions, waiting: Callable[[str], None]) -> Iterator[None]:
    """Lock the CPUs or the device, so that no other run of Steelyard uses them meanwhile."""
    names = locks.cpu_names() if options.device == "cpu" else [options.device.replace(":", "-")]
    with locks.hold(names, "steelyard judge", waiting):
        yield


@contextlib.contextmanager
def opened(problem: Problem, options: JudgeOptions, *, triton: bool = False) -> Iterator[JudgeBench]:
    """Open a bench that judges candidates for one problem, one after another."""
    try:
        with Court.open(problem, options, triton=triton) as court:
            yield JudgeBench(court)
    except Ended as error:
        raise UsageError(f"the reference cannot be called: {error.reason}", why=error.detail.strip(), where=problem.file) from None


class JudgeBench:
    """A court with the reference's stands, which are used for all candidates."""

    def __init__(self, court: Court) -> None:
        self.court = court
        self.pairs = PAIRS.get(court.options.device, 1)

    @property
    def sound(self) -> bool:
        """Whether the examiner and the reference's stands are still running, with their files; a candidate may have ended them."""
        return not self.court.lost_files() and not any(partner.talk.worker.gone or partner.talk.worker.ended for partner in self.court.own)

    def stand(self, pair: int) -> Partner:
        """Return the reference's stand of a pair of processes; its calls are timed once before a candidate runs beside it."""
        bases = self.court.bases
        while len(bases) <= pair:
            base, _ = self.court.seat(None)
            bases.append(base)
            self.court.calm[len(bases) - 1] = self._alone(base)
        return bases[pair]

    def ready(self) -> None:
        """Load the reference for all pairs before a candidate runs, so that its file is not read afterwards."""
        for pair in range(self.pairs):
            self.stand(pair)

    def calm_again(self) -> None:
        """Time the reference alone once more, because other processes drew or loaded when it was first timed."""
        self.court.calm = {pair: min(known, self._alone(self.stand(pair))) for pair, known in self.court.calm.items()}

    def _alone(self, base: Partner, wait: float = 0.0) -> float:
        """Return the seconds of a reference's call without a candidate, `wait` seconds after the last one."""
        self.court.see_off()
        times = []
        for _ in range(SERIAL):
            time.sleep(wait)
            base.step("land", slots=self.court.draw(self.court.numbers(1)))
            times.append(self.court.timed(base, "call")[0])
        return _middle(times)

    def judge(self, submission: Submission) -> Ruling:
        """Judge one candidate."""
        court = self.court
        self.ready()
        before, crowded = entries.content(court.problem), bool(court.leaving)
        limit = court.options.limit
        court.until = None if limit is None else time.monotonic() + limit
        try:
            seen = hear(court, submission, self.pairs, self.stand)
            court.untouched()
        except Sabotaged as error:
            return ruling.ended(court, submission, "wrong", str(error), [Trick("sabotage", str(error))])
        except Ended as error:
            if court.lost_files():
                return ruling.ended(court, submission, "wrong", REPLACED, [Trick("sabotage", REPLACED)])
            if error.status == "oom" and crowded:  # the last candidate may still have held the device's memory
                court.see_off()
                return self.judge(submission)
            orphaned = error.lost and court.lost_nursery()
            if not orphaned and (error.subject == CANDIDATE or not error.lost):
                return ruling.ended(court, submission, error.status, error.reason)
            words = f"{NURSERY if orphaned else error.subject} was ended while this candidate was judged: {error.reason}"
            court.begin_again()
            return ruling.ended(court, submission, "wrong", words, [Trick("sabotage", words)])
        except Forged as error:
            return ruling.ended(court, submission, "wrong", str(error), [Trick("forged", str(error))])
        if entries.content(court.problem) != before:
            seen.tell("sabotage", "the reference's file was changed while this candidate was judged: check the file, and judge again")
        found = ruling.rule(court, submission, seen)
        beside = _middle(base for base, _ in seen.serial)
        if found.correct and beside > CALM * court.calm[0] and beside > CALM * self._alone(self.stand(0), APART):
            return self._slowed(submission, found)
        return found

    def _slowed(self, submission: Submission, found: Ruling) -> Ruling:
        """The ruling if the reference was slower beside a candidate: sabotage if that shows every time, otherwise unclear."""
        slower = False
        with contextlib.suppress(Ended, Forged):
            slower = all(self._beside(submission) > CALM * self._alone(self.stand(0), APART) for _ in range(TURNS))
        if slower:
            trick = Trick("sabotage", "the reference is slower beside this candidate, and as fast as before without it")
            return ruling.voided(found, trick)
        return ruling.unsettled(
            found, "the reference was slower beside this candidate, but not every time: the machine is too busy for a verdict"
        )

    def _beside(self, submission: Submission) -> float:
        """Return the seconds of a reference's call beside a candidate that is loaded again."""
        head, _ = self.court.seat(submission)
        trial = Hearing(self.court, head, Evidence())
        try:
            with contextlib.suppress(Void):
                trial.one_by_one(self.stand(0))
        finally:
            self.court.unseat(head)
        return _middle(base for base, _ in trial.seen.serial)


def _middle(times: Iterable[float]) -> float:
    """Return the median of some times; 0 if there are none."""
    listed = sorted(times)
    return listed[len(listed) // 2] if listed else 0.0


def judge(reference: str, candidate: str, options: JudgeOptions | None = None, only: Sequence[str] = ()) -> Ruling:
    """Rule on one candidate; a reference with several problems needs `only`."""
    options = options or JudgeOptions()
    found = problems(reference, only, options)
    if len(found) != 1:
        names: list[Any] = [problem.label for problem in found[:6]]
        raise UsageError(f"{reference} has {len(found)} problems", why=", ".join(map(str, names)), do="name one with only=")
    for item in judge_all(reference, [candidate], options, only):
        return item
    raise SteelyardError("nothing was judged")
