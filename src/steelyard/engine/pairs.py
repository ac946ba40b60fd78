"""Comparing variants of one point with each other in one worker: interleaved, rebuilt, and judged by their blocks."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard import registry
from steelyard.backends.base import Leaf
from steelyard.engine import ranks
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.messages import Sources
from steelyard.engine.ranks import Ranks
from steelyard.engine.reference import reason
from steelyard.engine.scrutiny import Scrutiny
from steelyard.errors import SteelyardError
from steelyard.machine.telemetry import watch
from steelyard.measuring import paired, schedule
from steelyard.measuring.paired import Finding, Rounds
from steelyard.measuring.sample import Tell, single
from steelyard.measuring.settling import BROKEN_OFF, needed_seconds
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.pair import ALPHA, MARGIN, Arm, Pair, PairPart
from steelyard.model.record import Arrays
from steelyard.model.task import Task, clean_up, observed

NO_SOURCES = Sources()
LOOKS = 2
"""Most rebuilds whose answers are kept for checking: each takes the memory of one answer of every arm."""
HEAVY = "each model was built once: the interval covers other places of weights and inputs in memory and new caches, not another build"


@dataclass(frozen=True)
class ArmsWeighed:
    """The measurement of all arms, and how it was made."""

    doing: schedule.Weighing
    rounds: Rounds
    schedule: str
    telemetry: Arrays
    method: str = ""
    notes: tuple[str, ...] = ()
    rooted: frozenset[int] = frozenset()


def weigh_heads(
    base: Case,
    heads: Sequence[Case],
    loaded: registry.Loaded,
    settings: Settings,
    tell: Tell,
    sources: Sources = NO_SOURCES,
    suite: int = 1,
    patience: float = math.inf,
) -> list[tuple[Pair, Arrays]]:
    """Compare variants of one point in this process; they share the base's blocks and as many budgets as there are heads.

    All have been verified before. The random order is new every time, so that a repeated comparison is independent; its seed is kept.
    """
    rng = random.SystemRandom()
    settings = replace(settings, budget=settings.budget * len(heads))
    benches = [prepare_bench(case, loaded, settings) for case in (base, *heads)]
    with contextlib.ExitStack() as stack:
        for backend in {bench.backend for bench in benches}:
            stack.enter_context(backend.wholly_as_it_was())
        crew = stack.enter_context(ranks.assemble((base, *heads), settings, sources, benches[0].backend.leave))
        done = _weigh([replace(bench, seat=crew.seat) for bench in benches], crew, settings, rng, tell, suite, patience)
    found = []
    for number, bench in enumerate(benches[1:], 1):
        doing, finding = done.doing, done.doing.finding(number)
        if rooted := sorted(done.rooted & {0, number}):
            finding = paired.unmoved(finding, [f"what {benches[arm].case.variant} works on" for arm in rooted])
        how = {"stopped_by": doing.stop, "looks": doing.looks, "measured_s": doing.spent, "schedule": done.schedule}
        arms = Arm(base.id, source=benches[0].sources), Arm(bench.case.id, source=bench.sources)
        pair = pair_from(finding, done.rounds, number, arms, margin=settings.margin, **how)
        parts = {name: part_from(doing, name, number) for name in doing.parts}
        pair = replace(pair, clock=done.method or pair.clock, notes=[*pair.notes, *done.notes], parts=parts)
        found.append((pair, {**arrays_of(done.rounds.only(number)), **done.telemetry}))
    return found


def _weigh(
    benches: Sequence[Bench], crew: Ranks, settings: Settings, rng: random.Random, tell: Tell, suite: int, patience: float
) -> ArmsWeighed:
    alone = crew.seat.size == 1
    arms = [*benches, benches[0]] if alone else list(benches)
    made: dict[int, tuple[Bench, Any, Task]] = {}
    seen: dict[int, Scrutiny] = {}
    try:
        for arm in rng.sample(range(len(arms)), len(arms)):
            crew.tell("build", arm)
            made[arm] = (arms[arm], *arms[arm].build())
            seen[arm] = Scrutiny(*made[arm])
            crew.gather()
        if left := sorted({name for _, be, _ in made.values() for name in be.left_set}):
            raise SteelyardError(
                f"{', '.join(left)} sets something for the whole process, so what it is compared to would run under it too",
                do="set it in the task's scope, which is entered around its own calls alone",
            )
        built = [made[arm] for arm in range(len(arms))]
        for bench, be, task in built if alone and any(task.inspect or be.compiles_always for _, be, task in built) else ():
            observed(bench.ready(be, task))
        lead = built[0][1]
        before = [be.graphs() for _, be, _ in built]
        builds = [crew.rebuilt(be, bench.rebuilder(be, task, rng), settings, arm) for arm, (bench, be, task) in enumerate(built)]
        on_device = alone and lead.device != "cpu"
        timer = lead.pair_timer([bench.ready(be, task) for bench, be, task in built]) if on_device else crew.timer(lead)

        copied: list[list[Leaf] | None] = []
        glanced: list[list[list[Leaf] | None]] = []

        looked_at = alone and settings.scrutinised and not any(task.heavy or task.times_itself for _, _, task in built)

        def check(tasks: Sequence[Task]) -> None:
            copied.extend(seen[arm].answer_of(tasks[arm]) for arm in range(len(benches) if alone else 0))

        def look(tasks: Sequence[Task]) -> None:
            if len(glanced) < LOOKS:
                glanced.append([seen[arm].answer_of(tasks[arm]) for arm in range(len(benches))])

        with lead.observe() if settings.telemetry else watch(None) as log:
            doing = schedule.weigh_arms(
                builds[: len(benches)], timer, settings, rng.randrange(2**31), tell,
                placebo=builds[-1] if alone else None, suite=suite, patience=patience, check=check, look=look if looked_at else None,
            )  # fmt: skip
        if [be.graphs() for _, be, _ in built] != before:
            raise SteelyardError("something was compiled during the comparison", why="the comparison is invalid")
        _check_answers([seen[arm] for arm in range(len(benches) if alone else 0)], copied, glanced)
        how = "alternating calls" if all(single(task) for _, _, task in built) else "rounds"
        how = how if alone else f"{how} on {crew.seat.size} ranks"
        own = built[: len(benches)]
        kept = [bench.case.variant for bench, _, task in own if bench.sticky and not bench.rooted(task)]
        rooted = frozenset(arm for arm, (bench, _, task) in enumerate(own) if bench.rooted(task) or bench.holds(task))
        notes = [f"{', '.join(kept)}: one compilation, whose code stays where it is while inputs are moved"] if kept else []
        notes += [HEAVY] if any(task.heavy for _, _, task in own) else []
        notes += [BROKEN_OFF.format(doing.broken)] if doing.broken else []
        return ArmsWeighed(doing, doing.rounds(), how, log.arrays(), str(getattr(timer, "method", "")), tuple(notes), rooted)
    finally:
        clean_up(task for _, _, task in made.values())


def _check_answers(
    arms: Sequence[Scrutiny], copies: Sequence[list[Leaf] | None], glanced: Sequence[Sequence[list[Leaf] | None]] = ()
) -> None:
    """Check that the compared tasks still give right answers: as first built, as last rebuilt, and at looks in between; a wrong arm is
    an error.

    There are no copies if the last rebuild failed.
    """
    for number, (seen, copy) in enumerate(itertools.zip_longest(arms, copies[: len(arms)])):
        found = seen.again(seen.bench.ready(seen.be, seen.built)) if seen.wanted else None
        for answer in (copy, *(answers[number] for answers in glanced)):
            found = seen.copied(answer) if found else None
        if found and found.status == "failed":
            raise SteelyardError(f"{seen.bench.case.id} is wrong", why=reason(found))


def pair_from(found: Finding, rounds: Rounds, head: int, arms: tuple[Arm, Arm], **more: Any) -> Pair:
    """Return a finding as a pair, with the facts of how it was measured."""
    ratio = found.ratio
    base, other = (replace(arm, time=rounds.time(number, found.clock)) for arm, number in zip(arms, (0, head), strict=True))
    spent = float(more.get("measured_s", 0.0))
    return Pair(
        base=base, head=other, ratio=ratio.centre, low=ratio.low, high=ratio.high, confidence=1 - ALPHA,
        rebuilds=len(rounds.groups), quads=len(rounds.seconds), coin_seed=rounds.seed, calls=(rounds.calls[0], rounds.calls[head]),
        centres=[float(value) for value in found.centres], discarded=dict(zip(("base", "head"), found.discarded, strict=True)),
        clock=found.clock, floor=found.floor, p=found.p, evidence=found.evidence, notes=list(found.notes),
        needed_s=needed_seconds(found.interval, spent, float(more.get("margin", MARGIN))), **more,
    )  # fmt: skip


def part_from(doing: schedule.Weighing, name: str, head: int) -> PairPart:
    """Return the comparison of one part of the runs."""
    return _part(doing.rounds(name), doing.finding(head, name), head)


def part_of(rounds: Rounds, *, share: float) -> PairPart:
    """Return the comparison of one part from the rounds of its times, for two arms in separate processes."""
    return _part(rounds, paired.find(rounds, share=share), 1)


def _part(rounds: Rounds, found: Finding, head: int) -> PairPart:
    base, own = (rounds.time(number, found.clock) for number in (0, head))
    return PairPart(found.ratio.centre, found.ratio.low, found.ratio.high, found.p, base, own)


def arrays_of(rounds: Rounds) -> Arrays:
    """Return raw blocks for the sidecar, each array row after row in order of time."""
    kept: dict[str, tuple[str, str, np.ndarray[Any, Any]]] = {
        "round_time": ("s", "<f8", rounds.seconds), "round_cpu": ("s", "<f8", rounds.cpu),
        "round_disturbed": ("1", "|u1", rounds.disturbed),
        "round_arm": ("1", "|u1", rounds.arm), "round_rebuild": ("1", "<i4", rounds.group),
    }  # fmt: skip
    return {name: (unit, dtype, values.astype(dtype).tobytes()) for name, (unit, dtype, values) in kept.items()}
