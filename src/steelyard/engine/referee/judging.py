"""Judging candidates by program: one at a time or thousands, each in processes of its own, with nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from steelyard.engine.referee import layouts, ruling
from steelyard.engine.referee.court import CANDIDATE, Court
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.partner import Ended, Forged, Partner, Sabotaged
from steelyard.engine.referee.trial import SERIAL, hear
from steelyard.errors import SteelyardError, UsageError, unknown
from steelyard.machine import locks
from steelyard.model.judging import Contract, Problem, Ruling, Submission, Trick

PAIRS = {"cpu": 3}
AHEAD = 3
"""Interpreters that are started ahead of coming candidates on a device."""
CALM = 1.5
"""A reference that is this much slower beside a candidate is timed again without it."""


def problems(path: str, only: Sequence[str], options: JudgeOptions) -> list[Problem]:
    """The problems of a file or folder, under the contract that the options give them."""
    found: list[Problem] = layouts.find(path).problems(path, only)
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
) -> Iterator[Ruling]:
    """Rule on every candidate for every problem of a reference, as they come; a candidate that ends badly costs itself alone."""
    named = list(candidates)
    for problem in problems(reference, only, options):
        with _locked(options, waiting), opened(problem, options) as bench:
            for number, path in enumerate(named):
                bench.court.make_ready(min(AHEAD, len(named) - number))
                yield bench.judge(layouts.named(problem.layout).submission(path, problem))


@contextlib.contextmanager
def _locked(options: JudgeOptions, waiting: Callable[[str], None]) -> Iterator[None]:
    """The CPUs and the device to ourselves, as far as other runs of Steelyard go."""
    names = locks.cpu_names() if options.device == "cpu" else [options.device.replace(":", "-")]
    with locks.hold(names, "steelyard judge", waiting):
        yield


@contextlib.contextmanager
def opened(problem: Problem, options: JudgeOptions) -> Iterator[JudgeBench]:
    """A bench that judges candidates for one problem, one after another."""
    try:
        with Court.open(problem, options) as court:
            yield JudgeBench(court)
    except Ended as error:
        raise UsageError(f"the reference cannot be asked: {error.reason}", why=error.detail.strip(), where=problem.file) from None


class JudgeBench:
    """A court with the reference's stands, which serve all candidates."""

    def __init__(self, court: Court) -> None:
        self.court = court
        self.pairs = PAIRS.get(court.options.device, 1)

    def stand(self, pair: int) -> Partner:
        """The reference's stand of a pair of processes; its calls are timed alone once, before a candidate is beside it."""
        bases = self.court.bases
        while len(bases) <= pair:
            base, _ = self.court.seat(None)
            bases.append(base)
            self.court.calm[len(bases) - 1] = self._alone(base)
        return bases[pair]

    def _alone(self, base: Partner) -> float:
        times = []
        for _ in range(SERIAL):
            base.step("land", slots=self.court.draw(self.court.numbers(1)))
            times.append(base.step("call")[1])
        return sorted(times)[len(times) // 2]

    def judge(self, submission: Submission) -> Ruling:
        """Hear one candidate and rule on it."""
        court = self.court
        self.stand(0)
        try:
            seen = hear(court, submission, self.pairs, self.stand)
            court.untouched()
        except Sabotaged as error:
            return ruling.ended(court, submission, "wrong", str(error), [Trick("sabotage", str(error))])
        except Ended as error:
            if error.subject == CANDIDATE or not error.lost:
                return ruling.ended(court, submission, error.status, error.reason)
            words = f"{error.subject} ended while this candidate was heard, and not by itself: {error.reason}"
            court.begin_again()
            return ruling.ended(court, submission, "wrong", words, [Trick("sabotage", words)])
        except Forged as error:
            return ruling.ended(court, submission, "wrong", str(error), [Trick("forged", str(error))])
        slowed = [base for base, _ in seen.serial]
        found = ruling.rule(court, submission, seen)
        if slowed and found.correct and sorted(slowed)[len(slowed) // 2] > CALM * court.calm[0]:
            again = self._alone(self.stand(0))
            if again < sorted(slowed)[len(slowed) // 2] / CALM:
                trick = Trick("sabotage", "the reference is slower beside this candidate, and as fast as before without it")
                return replace(found, status="wrong", reason=trick.words, tricks=(*found.tricks, trick))
        return found


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
