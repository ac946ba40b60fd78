"""Comparing two arms that cannot share a process: pairs of processes in lock-step, and the result from their blocks.

In each pair of the pool, the base and the head get a worker each; the two build the case and take turns by themselves, while
the conductor sleeps. The interval is taken over pairs of processes.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.engine.conversation import Conversation, Lost, listen
from steelyard.engine.messages import Alternate, Answer, ArmAnswer, ArmFailed, Done, PartnerLost, Turns, Waiting
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import NoComparison, Pool, Stable, Tell, one_thread, said
from steelyard.engine.sides import BaseSide
from steelyard.errors import SteelyardError
from steelyard.machine.binding import CPUS
from steelyard.model.pair import Arm, Pair, PairPart
from steelyard.model.record import Arrays
from steelyard.model.units import plain as quantity

if TYPE_CHECKING:
    from steelyard.measuring.paired import Finding, Rounds
    from steelyard.measuring.settling import Looks

FEWEST_PAIRS = 4
GRACE = 5.0
QUADS, BLOCKS, CALLS = "lock-step quads", "alternating blocks", "alternating calls"


@dataclass
class Corner:
    """One arm as the conductor sees it."""

    who: str
    talk: Conversation
    ready: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, bytes] = field(default_factory=dict)
    alone: bool = False
    """Whether it reported that it lost the other arm."""

    def hear(self, answer: Answer | Lost) -> None:
        """Take in a worker's message; an arm that cannot continue raises NoComparison."""
        if isinstance(answer, Waiting):
            self.ready, self.talk.phase = True, "weighing"
        elif isinstance(answer, ArmAnswer):
            try:
                self.figures = checked(answer.figures)
            except (TypeError, ValueError, KeyError) as error:
                raise NoComparison(f"{self.who} crashed: it sent an invalid message during {self.talk.phase}") from error
            self.arrays = {name: data for name, (_, _, data) in answer.arrays.items()}
        elif isinstance(answer, PartnerLost):
            self.alone = True
        elif isinstance(answer, (ArmFailed, Lost)):
            raise NoComparison(f"{self.who} {answer.status}: {answer.reason}")
        elif isinstance(answer, Done) and (over := self.talk.struck()):
            raise NoComparison(f"{self.who} oom: {over}")
        elif isinstance(answer, Done) and not self.figures and not self.alone:
            raise NoComparison(f"{self.who} crashed: it gave no answer during {self.talk.phase}")


def checked(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that an arm reported; ValueError if they cannot be an arm's."""
    calls, quads, quad, overhead, doubt = (figures[name] for name in ("calls", "quads", "quad", "overhead", "doubt"))
    whole, renewal = [*calls, quads, figures["rebuilds"]], figures["renewal"]
    sound = len(calls) == 2 and all(type(number) is int and number > 0 for number in whole) and quad > 0 and overhead >= 0 and doubt >= 0
    if not sound or (renewal is not None and not renewal > 0):
        raise ValueError("not the measurements of an arm")
    return {**figures, "source": str(figures["source"]), "single": bool(figures["single"])}


@dataclass(frozen=True)
class Bout:
    """The result of one pair of processes: figures and raw blocks of both arms, the base first."""

    seed: str
    figures: tuple[Mapping[str, Any], Mapping[str, Any]]
    arrays: tuple[Mapping[str, bytes], Mapping[str, bytes]]


@dataclass
class Match:
    """A comparison in progress: the pairs of processes so far, and the number of the next look at their blocks."""

    job: Job
    plan: Plan
    side: BaseSide
    rng: random.Random
    seed: int
    looks: Looks
    first: int
    share: float
    began: float = math.inf
    look: int = 0
    bouts: list[Bout] = field(default_factory=list)

    @property
    def deadline(self) -> float:
        """When the comparison must be over; the time to start the pool does not count."""
        return self.began + self.plan.settings.timeout

    @property
    def until(self) -> int:
        """How many pairs of processes this look needs; fewer if the calls take longer than the budget."""
        if self.look:
            return math.ceil(self.first * self.looks.at[self.look])
        fitting = math.ceil(self.plan.settings.budget / self.bouts[0].figures[0]["quad"]) if self.bouts else self.first
        return min(self.first, max(FEWEST_PAIRS, fitting))

    @property
    def progress(self) -> tuple[str, float]:
        """The text that describes the comparison's progress, and the fraction that is done at most."""
        return self.looks.progress(self.look, len(self.bouts) / (self.first if self.look else self.until))


@dataclass(frozen=True)
class Look:
    """The result from the blocks of all pairs of processes at one look; `stop` is why the match ended there, or empty."""

    number: int
    rounds: Rounds
    found: Finding
    stop: str = ""


def weigh(pool: Pool, job: Job, plan: Plan, tell: Tell) -> tuple[Pair, Arrays]:
    """Weigh a case against its base on the other side; NoComparison is raised if that is not possible.

    The first look is at the end of the budget. As long as it is worth going on, more pairs of processes follow; an error in
    those ends the measurement, but the result from before is kept.
    """
    from steelyard.measuring.settling import BROKEN_OFF, BUDGET, Looks

    assert job.side is not None
    side, settings, notes = job.side, plan.settings, list(job.side.notes)
    rng, count = random.Random(f"{settings.seed} {side.label} {job.case.id}"), pool.count(job, side)
    looks, share = Looks(settings.settle), settings.budget / count
    match = Match(job, plan, side, rng, rng.randrange(2**31), looks, count, share)
    _take_bouts(pool, match, tell)
    match.first = len(match.bouts)
    seen = look_at(match)
    while not seen.stop:
        match.look += 1
        try:
            _take_bouts(pool, match, tell)
            seen = look_at(match)
        except NoComparison as error:
            notes.append(BROKEN_OFF.format(error))
            seen = replace(seen, stop=BUDGET)
    return pair_of(match, seen, pool.layout(job, side), notes)


def look_at(match: Match) -> Look:
    """Evaluate all pairs of processes so far, and decide whether the match ends."""
    from steelyard.measuring import paired, settling

    try:
        rounds = rounds_of(match.bouts, match.seed)
    except (ValueError, KeyError) as error:
        raise NoComparison("the arms sent invalid blocks", why=str(error)) from error
    found, settings = paired.find(rounds, share=match.looks.share(match.look)), match.plan.settings
    at, now, spent = match.looks.at, match.looks.at[match.look], float(rounds.seconds.sum())
    if not settling.goes_on(found.interval, settings.margin, spent, spent * (at[-1] / now - 1)):
        decided = settling.settled(found.interval, settings.margin)
        return Look(match.look, rounds, found, settling.ending(settling.BUDGET, match.look, decided=decided))
    late = (time.monotonic() - match.began) * at[match.look + 1] / now > settling.PATIENCE * settings.timeout
    return Look(match.look, rounds, found, settling.TIMEOUT if late else "")


def _take_bouts(pool: Pool, match: Match, tell: Tell) -> None:
    """Run one pair of processes after another, each with a new memory layout, until there are enough for a look."""
    with tempfile.TemporaryDirectory(prefix="steelyard-arms-", ignore_cleanup_errors=True) as folder:
        while len(match.bouts) < match.until:
            stable = pool.stable(match.job, match.side, tell, anew=bool(match.bouts))
            match.began = match.began if match.bouts else time.monotonic()
            try:
                for number in range(len(stable.shifts)):
                    if len(match.bouts) < match.until:
                        tell(*match.progress)
                        match.bouts.append(_bout(pool, stable, number, match, _turns(match, Path(folder))))
            except NoComparison:
                raise
            except (SteelyardError, OSError) as error:
                pool.forget(stable)
                raise NoComparison(said(error)) from error
            finally:
                pool.tidy()


def _turns(match: Match, folder: Path) -> Turns:
    """Return the plan for both arms of the next pair; the first pair finds out what fits the budget, and later pairs use that."""
    number, rng = len(match.bouts), match.rng
    pipes = folder / str(number)
    pipes.mkdir()
    for arm in (0, 1):
        os.mkfifo(pipes / str(arm), 0o600)
    first, cpu = rng.randrange(2), rng.choice(sorted(os.sched_getaffinity(0))) if pinned(match.job) else None
    agreed = _agreed(match.bouts[0], match.share) if match.bouts else {}
    return Turns(f"{match.seed} {number}", str(pipes), match.share, first, cpu, agreed)


def _agreed(first: Bout, share: float) -> dict[str, Any]:
    """Return the plan for further pairs: what the first pair agreed on, with as many rebuilds as turned out to fit."""
    from steelyard.engine.arm import affordable

    known = {name: first.figures[0][name] for name in ("calls", "quads", "overhead", "quad", "doubt")}
    return {**known, "rebuilds": affordable([figures["renewal"] for figures in first.figures], known["quads"], share)}


def pinned(job: Job) -> bool:
    """Whether both arms share one CPU: they need no more, and no CPU was chosen for them."""
    return one_thread(job) and hasattr(os, "sched_setaffinity") and CPUS not in dict(job.case.flags)


def _part(match: Match, arm: int, turns: Turns) -> Alternate:
    """Return an arm's job; both arms are verified in the first pair of processes, after their blocks."""
    job, plan = match.job, match.plan
    assert job.vs is not None
    sources, case = plan.sources_of(job), job.case
    if arm == 0:
        sources, case = replace(sources, files=tuple(match.side.files), paths=match.side.place.paths), job.vs
    settings = replace(plan.settings, verify=plan.settings.verify if not match.bouts else False)
    return Alternate(sources, settings, case, arm, turns)


def _bout(pool: Pool, stable: Stable, number: int, match: Match, turns: Turns) -> Bout:
    couple, memory = stable.couple(number), match.plan.settings.memory
    names = (f"the base ({match.side.label})", "the head")
    try:
        corners = [
            Corner(who, Conversation(worker, pool.limit(worker, memory), "its process", gated=True))
            for who, worker in zip(names, couple, strict=True)
        ]
        for arm, corner in enumerate(corners):
            corner.talk.ask(_part(match, arm, turns), None)
        hold(corners, match.plan.settings.timeout, match.deadline)
    except BaseException:
        stable.drop(couple)
        raise
    stable.release(couple)
    base, head = corners
    return Bout(turns.seed, (base.figures, head.figures), (base.arrays, head.arrays))


def hold(corners: Sequence[Corner], patience: float, deadline: float) -> None:
    """Wait until both arms are done; NoComparison if one fails. The conductor sleeps meanwhile: the arms need only each other."""
    by_talk = {id(corner.talk): corner for corner in corners}
    alone, begun = math.inf, False
    while busy := [corner.talk for corner in corners if not corner.talk.over]:
        for talk, answer in listen(busy, min(deadline, alone)):
            by_talk[id(talk)].hear(answer)
        if not begun and all(corner.ready for corner in corners):
            begun = True
            for corner in corners:
                corner.talk.go()
        if any(corner.alone for corner in corners):
            alone = min(alone, time.monotonic() + GRACE)
        if min(deadline, alone) <= time.monotonic():
            seen = ", ".join(f"{corner.who} in {corner.talk.phase}" for corner in corners)
            late = f"timeout: no answer within {quantity(patience, 's')} (last seen: {seen})"
            raise NoComparison(late if alone > deadline else f"the arms lost contact with each other (last seen: {seen})")
    if any(corner.alone for corner in corners):
        raise NoComparison("the arms lost contact with each other")


def pair_of(match: Match, seen: Look, layout: str, notes: Sequence[str]) -> tuple[Pair, Arrays]:
    """Return the result over all pairs of processes, and how it was measured.

    A base that is another case is named by its id; a base that is the same case by its side.
    """
    from steelyard.engine import pairs

    job, side, rounds = match.job, match.side, seen.rounds
    base, head = match.bouts[0].figures
    single = base["single"] or head["single"]
    schedule = QUADS if pinned(job) and not single else CALLS if rounds.calls == (1, 1) else BLOCKS
    assert job.vs is not None
    theirs, ours = side.origins
    named = side.label if job.vs == job.case else ""
    arms = Arm(job.vs.id, named, base["source"], *theirs), Arm(job.case.id, side.facing, head["source"], *ours)
    pair = pairs.pair_from(
        seen.found, rounds, 1, arms, stopped_by=seen.stop, looks=seen.number + 1, measured_s=float(rounds.seconds.sum()),
        schedule=schedule, layout=layout, processes=2 * len(rounds.groups), margin=match.plan.settings.margin,
    )  # fmt: skip
    return replace(pair, notes=[*pair.notes, *notes], parts=parts_of(match, seen)), pairs.arrays_of(rounds)


def parts_of(match: Match, seen: Look) -> dict[str, PairPart]:
    """Return the comparison of times inside the blocks, such as those of single operators, at the look that ended the match."""
    from steelyard.engine.arm import PART
    from steelyard.engine.pairs import part_of

    bouts = match.bouts[: len(seen.rounds.groups)]
    named = set.intersection(*(set(arrays) for bout in bouts for arrays in bout.arrays))
    names = sorted(name.removeprefix(PART) for name in named if name.startswith(PART))
    try:
        return {name: part_of(rounds_of(bouts, match.seed, name), share=match.looks.share(seen.number)) for name in names}
    except ValueError as error:
        raise NoComparison("the arms sent invalid blocks", why=str(error)) from error


def rounds_of(bouts: Sequence[Bout], seed: int, part: str = "") -> Rounds:
    """Return the blocks of both arms in order of time; their group is the number of the pair of processes.

    With `part`, only the times of that part of each block, which have no CPU time.
    """
    import numpy as np

    from steelyard.engine.arm import PART, coins, turns
    from steelyard.measuring.paired import Rounds

    figures = bouts[0].figures[0]
    quads = figures["quads"]
    order = np.asarray([turns(coins(bout.seed, quads)) for bout in bouts], np.int32).reshape(-1, 4)

    def in_order(name: str, dtype: str) -> Any:
        whole = np.empty(order.shape, dtype)
        for arm in (0, 1):
            blocks = [np.frombuffer(bout.arrays[arm][name], dtype).reshape(quads, 2) for bout in bouts]
            whole[order == arm] = np.concatenate(blocks).ravel()
        return whole

    group = np.repeat(np.arange(len(bouts), dtype=np.int32), quads)
    calls, known = (int(figures["calls"][0]), int(figures["calls"][1])), (float(figures["overhead"]), seed, float(figures["doubt"]))
    took = in_order(f"{PART}{part}", "<f8") * 1e-9 if part else in_order("took", "<i8") * 1e-9
    busy, hit = in_order("busy", "<i8") * (0.0 if part else 1e-9), in_order("hit", "|u1").astype(bool)
    return Rounds(took, busy, hit, order, group, calls, None, *known)
