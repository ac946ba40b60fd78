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
    from steelyard.measuring.paired import Rounds

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
            self.done = bool(self.figures)
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
    calls, quads, quad, overhead = figures["calls"], figures["quads"], figures["quad"], figures["overhead"]
    whole, renewal = [*calls, quads, figures["rebuilds"]], figures["renewal"]
    sound = len(calls) == 2 and all(type(number) is int and number > 0 for number in whole) and quad > 0 and overhead >= 0
    if not sound or (renewal is not None and not renewal > 0):
        raise ValueError("not the figures of an arm")
    return {**figures, "source": str(figures["source"]), "single": bool(figures["single"])}


@dataclass(frozen=True)
class Bout:
    """What one pair of processes gave: figures and raw blocks of both arms, the base first."""

    seed: str
    figures: tuple[Mapping[str, Any], Mapping[str, Any]]
    arrays: tuple[Mapping[str, bytes], Mapping[str, bytes]]


def weigh(pool: Pool, job: Job, plan: Plan, tell: Tell) -> tuple[Pair, Arrays]:
    """Weigh a case against the same case on the other side; whatever prevents that is raised as Unweighed."""
    assert plan.other is not None
    side = plan.other
    rng = random.Random(f"{plan.settings.seed} {side.label} {job.case.id}")
    seed = rng.randrange(2**31)
    stable = pool.stable(job, side, tell)
    try:
        bouts = _bouts(pool, stable, job, plan, f"{seed}", rng, tell)
    except Unweighed:
        raise
    except (SteelyardError, OSError) as error:
        pool.forget(stable)
        raise Unweighed(said(error)) from error
    finally:
        pool.tidy()
    return pair_of(bouts, job, side, seed, pool.layout(job, side))


def _bouts(pool: Pool, stable: Stable, job: Job, plan: Plan, seed: str, rng: random.Random, tell: Tell) -> list[Bout]:
    """One pair of processes after another; the first finds out what fits the budget, and the others do as it did."""
    assert plan.other is not None
    settings, count = plan.settings, pool.count(job, plan.other)
    share, deadline = settings.budget / count, time.monotonic() + settings.timeout
    found: list[Bout] = []
    with tempfile.TemporaryDirectory(prefix="steelyard-arms-", ignore_cleanup_errors=True) as folder:
        while len(found) < count:
            number = len(found)
            tell("weighing", number / count)
            order = {
                "seed": f"{seed} {number}",
                "token": _pipes(Path(folder) / str(number)),
                "share": share,
                "first": rng.randrange(2),
                "cpu": None,
            }
            if pinned(job):
                order["cpu"] = rng.choice(sorted(os.sched_getaffinity(0)))
            if found:
                order["agreed"] = _agreed(found[0], share)
            found.append(_bout(pool, stable, number, [_message(job, plan, arm, order, first=not number) for arm in (0, 1)], plan, deadline))
            count = min(count, max(FEWEST_PAIRS, math.ceil(settings.budget / found[0].figures[0]["quad"])))
    return found


def _agreed(first: Bout, share: float) -> dict[str, Any]:
    """What further pairs hold to: what the first agreed on, with as many rebuilds as turned out to fit."""
    from steelyard.engine.arm import affordable

    known = {name: first.figures[0][name] for name in ("calls", "quads", "overhead", "quad")}
    return {**known, "rebuilds": affordable([figures["renewal"] for figures in first.figures], known["quads"], share)}


def pinned(job: Job) -> bool:
    """Both arms share one CPU where they need no more."""
    return one_thread(job) and hasattr(os, "sched_setaffinity")


def _pipes(folder: Path) -> str:
    folder.mkdir()
    for arm in (0, 1):
        os.mkfifo(folder / str(arm), 0o600)
    return str(folder)


def _message(job: Job, plan: Plan, arm: int, order: Mapping[str, Any], *, first: bool) -> dict[str, Any]:
    """An arm's job; the base is verified once, the head was when its own figures were taken."""
    assert plan.other is not None
    message = plan.message(job)
    if arm == 0:
        message |= {"files": list(plan.other.files), "paths": list(plan.other.place.paths)}
    message["settings"] |= {"verify": plan.settings.verify and first and arm == 0}
    return {**message, **order, "do": "arm", "arm": arm}


def _bout(pool: Pool, stable: Stable, number: int, messages: Sequence[Mapping[str, Any]], plan: Plan, deadline: float) -> Bout:
    assert plan.other is not None
    couple = stable.couple(number)
    names = (f"the base ({plan.other.label})", "the head")
    try:
        corners = [Corner(who, worker, pool.limit(worker, plan.settings.memory)) for who, worker in zip(names, couple, strict=True)]
        for corner, message in zip(corners, messages, strict=True):
            corner.worker.send(message)
        hold(corners, plan.settings, deadline)
    except BaseException:
        stable.drop(couple)
        raise
    stable.release(couple)
    base, head = corners
    return Bout(messages[0]["seed"], (base.figures, head.figures), (base.arrays, head.arrays))


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


def pair_of(bouts: Sequence[Bout], job: Job, side: Side, seed: int, layout: str) -> tuple[Pair, Arrays]:
    """What the blocks of all pairs of processes say together."""
    from steelyard.engine import pairs
    from steelyard.measuring import paired

    try:
        rounds = rounds_of(bouts, seed)
    except (ValueError, KeyError) as error:
        raise Unweighed("the arms sent something that is not an answer", why=str(error)) from error
    base, head = bouts[0].figures
    single = base["single"] or head["single"]
    schedule = QUADS if pinned(job) and not single else CALLS if rounds.calls == (1, 1) else BLOCKS
    arms = Arm(job.case.id, side.label, base["source"]), Arm(job.case.id, side.facing, head["source"])
    spent = float(rounds.seconds.sum())
    how = {"stopped_by": "budget", "measured_s": spent, "schedule": schedule, "layout": layout, "processes": 2 * len(bouts)}
    pair = pairs.pair_from(paired.find(rounds), rounds, 1, arms, **how)
    return replace(pair, notes=[*pair.notes, *side.notes]), pairs.arrays_of(rounds)


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
        float(figures["overhead"]), seed,
    )  # fmt: skip
