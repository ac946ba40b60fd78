"""Comparing two things that cannot live in one process: pairs of processes in lock-step, and what their blocks say.

For each pair in the pool the base and the head get a worker; the two build the case and take turns by themselves, while
the conductor sleeps. The interval is taken over pairs.
"""

from __future__ import annotations

import base64
import math
import os
import random
import select
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.engine.launch import Worker
from steelyard.engine.limits import WATCH_EVERY, MemoryLimit
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import Pool, Stable, Tell, Unweighed, one_thread, said
from steelyard.engine.sides import Side
from steelyard.errors import SteelyardError
from steelyard.model.experiment import Settings
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Arrays
from steelyard.model.units import plain as quantity

if TYPE_CHECKING:
    from steelyard.measuring.paired import Finding, Rounds
    from steelyard.measuring.settling import Looks

FEWEST_PAIRS = 4
GRACE, IDLE = 5.0, 1.0
QUADS, BLOCKS, CALLS = "lock-step quads", "alternating blocks", "alternating calls"


@dataclass
class Corner:
    """One arm as the conductor sees it."""

    who: str
    worker: Worker
    limit: MemoryLimit | None = None
    phase: str = "start"
    ready: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, bytes] = field(default_factory=dict)
    done: bool = False
    lost: bool = False
    failure: str = ""

    def __post_init__(self) -> None:
        self.kills = self.limit.kills() if self.limit else 0

    def hear(self, message: Mapping[str, Any] | None) -> None:
        """Take in what the worker said; None means that it has ended."""
        if message is None:
            self.failure = self.failure or self._autopsy()
        elif "phase" in message:
            self.phase = str(message["phase"])
        elif "ready" in message:
            self.ready, self.phase = True, "weighing"
        elif "failed" in message:
            status, reason = message["failed"]
            self.failure = f"{status}: {reason}"
        elif "error" in message:
            error = message["error"]
            self.failure = "failed: " + "; ".join(str(error[name]) for name in ("what", "why", "do") if error.get(name))
        elif "lost" in message:
            self.lost = True
        elif "arm" in message:
            self.figures = checked(message["arm"])
            self.arrays = {name: base64.b64decode(data) for name, (_, _, data) in message["arrays"].items()}
        elif "done" in message:
            if self.limit and self.limit.kills() > self.kills:
                self.failure = self.over()
            self.done = bool(self.figures) and not self.failure
            self.failure = self.failure or ("" if self.done or self.lost else f"crashed: it gave no answer during {self.phase}")

    def over(self) -> str:
        """Why a worker that took too much memory was ended."""
        return f"oom: used more than the {quantity(self.limit.limit if self.limit else 0, 'B')} it may during {self.phase}"

    def _autopsy(self) -> str:
        ending = self.worker.stop()
        if self.limit and (self.limit.struck() or (ending.code == -9 and self.limit.group)):
            return self.over()
        last = next((line.strip() for line in reversed(ending.stderr.splitlines()) if line.strip()), "")
        return f"crashed: its process {ending} during {self.phase}" + (f"; last words: {last[:200]}" if last else "")


def checked(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What an arm says of itself, as far as it is what an arm would say."""
    calls, quads, quad, overhead, doubt = (figures[name] for name in ("calls", "quads", "quad", "overhead", "doubt"))
    whole, renewal = [*calls, quads, figures["rebuilds"]], figures["renewal"]
    sound = len(calls) == 2 and all(type(number) is int and number > 0 for number in whole) and quad > 0 and overhead >= 0 and doubt >= 0
    if not sound or (renewal is not None and not renewal > 0):
        raise ValueError("not the figures of an arm")
    return {**figures, "source": str(figures["source"]), "single": bool(figures["single"])}


@dataclass(frozen=True)
class Bout:
    """What one pair of processes gave: figures and raw blocks of both arms, the base first."""

    seed: str
    figures: tuple[Mapping[str, Any], Mapping[str, Any]]
    arrays: tuple[Mapping[str, bytes], Mapping[str, bytes]]


@dataclass
class Match:
    """A comparison in progress: the pairs of processes so far, and the look that follows them."""

    job: Job
    plan: Plan
    side: Side
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
        """When all of it must be over; the time to start the pool does not count."""
        return self.began + self.plan.settings.timeout

    @property
    def until(self) -> int:
        """How many pairs there are to be at this look; calls that take longer than the budget get fewer."""
        if self.look:
            return math.ceil(self.first * self.looks.at[self.look])
        fitting = math.ceil(self.plan.settings.budget / self.bouts[0].figures[0]["quad"]) if self.bouts else self.first
        return min(self.first, max(FEWEST_PAIRS, fitting))

    @property
    def progress(self) -> tuple[str, float]:
        """What to say of it, and how far it is at most."""
        if self.look == 0:
            return "weighing", len(self.bouts) / self.until
        return "weighing on, not settled yet", (len(self.bouts) / self.first - 1) / (self.looks.at[-1] - 1)


@dataclass(frozen=True)
class Look:
    """What the blocks of all pairs of processes say at one look; `stop` is what ended the match there, or empty."""

    number: int
    rounds: Rounds
    found: Finding
    stop: str = ""


def weigh(pool: Pool, job: Job, plan: Plan, tell: Tell) -> tuple[Pair, Arrays]:
    """Weigh a case against its base on the other side; whatever prevents that is raised as Unweighed.

    The first look is at the end of the budget. As long as it is worth going on, more pairs of processes follow; what goes wrong
    with those ends the measurement and costs nothing of what was found before.
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
        except Unweighed as error:
            notes.append(BROKEN_OFF.format(error))
            seen = replace(seen, stop=BUDGET)
    return pair_of(match, seen, pool.layout(job, side), notes)


def look_at(match: Match) -> Look:
    """What all pairs of processes so far say, and what ends the match, if anything does."""
    from steelyard.measuring import paired, settling

    try:
        rounds = rounds_of(match.bouts, match.seed)
    except (ValueError, KeyError) as error:
        raise Unweighed("the arms sent something that is not an answer", why=str(error)) from error
    found, settings = paired.find(rounds, share=match.looks.share(match.look)), match.plan.settings
    at, now, spent = match.looks.at, match.looks.at[match.look], float(rounds.seconds.sum())
    if not settling.goes_on(found.interval, settings.margin, spent, spent * (at[-1] / now - 1)):
        decided = settling.settled(found.interval, settings.margin)
        return Look(match.look, rounds, found, settling.ending(settling.BUDGET, match.look, decided=decided))
    late = (time.monotonic() - match.began) * at[match.look + 1] / now > settling.PATIENCE * settings.timeout
    return Look(match.look, rounds, found, settling.TIMEOUT if late else "")


def _take_bouts(pool: Pool, match: Match, tell: Tell) -> None:
    """One pair of processes after another, each with a layout that none had before, until there are enough for a look."""
    with tempfile.TemporaryDirectory(prefix="steelyard-arms-", ignore_cleanup_errors=True) as folder:
        while len(match.bouts) < match.until:
            stable = pool.stable(match.job, match.side, tell, anew=bool(match.bouts))
            match.began = match.began if match.bouts else time.monotonic()
            try:
                for number in range(len(stable.shifts)):
                    if len(match.bouts) < match.until:
                        tell(*match.progress)
                        match.bouts.append(_bout(pool, stable, number, match, _order(match, Path(folder))))
            except Unweighed:
                raise
            except (SteelyardError, OSError) as error:
                pool.forget(stable)
                raise Unweighed(said(error)) from error
            finally:
                pool.tidy()


def _order(match: Match, folder: Path) -> dict[str, Any]:
    """What both arms of the next pair are told; the first finds out what fits the budget, and the others do as it did."""
    number, rng = len(match.bouts), match.rng
    order: dict[str, Any] = {"seed": f"{match.seed} {number}", "token": _pipes(folder / str(number)), "share": match.share}
    order |= {"first": rng.randrange(2), "cpu": rng.choice(sorted(os.sched_getaffinity(0))) if pinned(match.job) else None}
    return order | ({"agreed": _agreed(match.bouts[0], match.share)} if match.bouts else {})


def _agreed(first: Bout, share: float) -> dict[str, Any]:
    """What further pairs hold to: what the first agreed on, with as many rebuilds as turned out to fit."""
    from steelyard.engine.arm import affordable

    known = {name: first.figures[0][name] for name in ("calls", "quads", "overhead", "quad", "doubt")}
    return {**known, "rebuilds": affordable([figures["renewal"] for figures in first.figures], known["quads"], share)}


def pinned(job: Job) -> bool:
    """Both arms share one CPU where they need no more."""
    return one_thread(job) and hasattr(os, "sched_setaffinity")


def _pipes(folder: Path) -> str:
    folder.mkdir()
    for arm in (0, 1):
        os.mkfifo(folder / str(arm), 0o600)
    return str(folder)


def _message(match: Match, arm: int, order: Mapping[str, Any]) -> dict[str, Any]:
    """An arm's job; both are verified in the first pair of processes, after their blocks."""
    assert match.job.vs is not None
    message = match.plan.message(match.job)
    if arm == 0:
        message |= {"case": match.job.vs.plain(), "files": list(match.side.files), "paths": list(match.side.place.paths)}
    message["settings"] |= {"verify": match.plan.settings.verify and not match.bouts}
    return {**message, **order, "do": "arm", "arm": arm}


def _bout(pool: Pool, stable: Stable, number: int, match: Match, order: Mapping[str, Any]) -> Bout:
    couple, settings = stable.couple(number), match.plan.settings
    names = (f"the base ({match.side.label})", "the head")
    try:
        corners = [Corner(who, worker, pool.limit(worker, settings.memory)) for who, worker in zip(names, couple, strict=True)]
        for arm, corner in enumerate(corners):
            corner.worker.send(_message(match, arm, order))
        hold(corners, settings, match.deadline)
    except BaseException:
        stable.drop(couple)
        raise
    stable.release(couple)
    base, head = corners
    return Bout(order["seed"], (base.figures, head.figures), (base.arrays, head.arrays))


def hold(corners: Sequence[Corner], settings: Settings, deadline: float) -> None:
    """Until both arms are done, or one cannot be; the conductor sleeps meanwhile, and the arms need each other alone."""
    gone, begun = math.inf, False
    while not all(corner.done for corner in corners):
        for corner in corners:
            if corner.failure:
                raise Unweighed(f"{corner.who} {corner.failure}")
        if not begun and all(corner.ready for corner in corners):
            begun = True
            for corner in corners:
                corner.worker.send({"do": "go"})
        if any(corner.lost for corner in corners):
            gone = min(gone, time.monotonic() + GRACE)
        left = min(deadline, gone) - time.monotonic()
        if left <= 0:
            seen = ", ".join(f"{corner.who} in {corner.phase}" for corner in corners)
            raise Unweighed(
                f"timeout: no answer within {quantity(settings.timeout, 's')} (last seen: {seen})"
                if gone > deadline
                else f"the arms lost each other (last seen: {seen})"
            )
        _listen([corner for corner in corners if not corner.done], left)


def _listen(corners: Sequence[Corner], left: float) -> None:
    watched = any(corner.limit and not corner.limit.group for corner in corners)
    blind = any(corner.worker.pidfd is None for corner in corners)
    fds = [fd for corner in corners for fd in (corner.worker.events, corner.worker.pidfd) if fd is not None]
    ready = select.select(fds, [], [], min(left, WATCH_EVERY if watched else IDLE if blind else left))[0]
    for corner in corners:
        if corner.limit and not corner.limit.group and corner.limit.exceeded(corner.worker.pid):
            corner.failure = corner.over()
        elif blind or corner.worker.events in ready or corner.worker.pidfd in ready:
            try:
                for message in corner.worker.messages(0):
                    corner.hear(message)
            except (TypeError, ValueError, AttributeError, KeyError):
                corner.failure = f"crashed: it sent something that is not an answer during {corner.phase}"


def pair_of(match: Match, seen: Look, layout: str, notes: Sequence[str]) -> tuple[Pair, Arrays]:
    """The result over all pairs of processes, and how it was measured."""
    from steelyard.engine import pairs

    job, side, rounds = match.job, match.side, seen.rounds
    base, head = match.bouts[0].figures
    single = base["single"] or head["single"]
    schedule = QUADS if pinned(job) and not single else CALLS if rounds.calls == (1, 1) else BLOCKS
    arms = _arms(job, side, base["source"], head["source"])
    pair = pairs.pair_from(
        seen.found, rounds, 1, arms, stopped_by=seen.stop, looks=seen.number + 1, measured_s=float(rounds.seconds.sum()),
        schedule=schedule, layout=layout, processes=2 * len(rounds.groups), margin=match.plan.settings.margin,
    )  # fmt: skip
    return replace(pair, notes=[*pair.notes, *notes]), pairs.arrays_of(rounds)


def _arms(job: Job, side: Side, base: str, head: str) -> tuple[Arm, Arm]:
    """Both arms; a base that is another case says so by its id, and one that is the same by its side's name."""
    assert job.vs is not None
    theirs, ours = side.origins
    return Arm(job.vs.id, side.label if job.vs == job.case else "", base, *theirs), Arm(job.case.id, side.facing, head, *ours)


def rounds_of(bouts: Sequence[Bout], seed: int) -> Rounds:
    """The blocks of both arms put together in order of time; the number of the pair of processes is their group."""
    import numpy as np

    from steelyard.engine.arm import coins
    from steelyard.measuring.paired import Rounds

    parts: dict[str, list[Any]] = {name: [] for name in ("took", "busy", "hit", "coin", "group")}
    figures = bouts[0].figures[0]
    for number, bout in enumerate(bouts):
        coin = np.asarray(coins(bout.seed, figures["quads"]))
        for name, dtype in (("took", "<i8"), ("busy", "<i8"), ("hit", "|u1")):
            base, head = (np.frombuffer(arrays[name], dtype).reshape(len(coin), 2) for arrays in bout.arrays)
            first, second = np.where(coin[:, None], base, head), np.where(coin[:, None], head, base)
            parts[name].append(np.stack([first[:, 0], second[:, 0], second[:, 1], first[:, 1]], axis=1))
        parts["coin"].append(coin)
        parts["group"].append(np.full(len(coin), number, np.int32))
    whole = {name: np.concatenate(items) for name, items in parts.items()}
    calls = (int(figures["calls"][0]), int(figures["calls"][1]))
    return Rounds.from_quads(
        whole["took"] * 1e-9, whole["busy"] * 1e-9, whole["hit"].astype(bool), whole["coin"], whole["group"], calls,
        float(figures["overhead"]), seed, float(figures["doubt"]),
    )  # fmt: skip
