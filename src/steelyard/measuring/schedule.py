"""Arms in one process: short blocks interleaved in randomised rounds, all arms rebuilt again and again.

Drift cancels inside a round because its order is drawn and mirrored; memory placement cancels because the interval is
taken over rebuilds, each with fresh buffers and fresh code. The base is built twice in every rebuild: the second one
is a placebo, whose distance from the first is the noise floor, and serves as base as well.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from types import FunctionType
from typing import Any

import numpy as np

from steelyard.measuring.clock import Loop, Timer
from steelyard.measuring.evidence import Wager
from steelyard.measuring.paired import WALL, Rounds
from steelyard.measuring.sample import Tell, calibrate, empty_cost, quiet_collector, single, throttled
from steelyard.model.experiment import Settings
from steelyard.model.pair import ALPHA, MARGIN
from steelyard.model.task import Task

WARM_SHARE, MOST_ROUNDS = 0.375, 4000
PILOT, FEWEST_REBUILDS, MOST_REBUILDS = 8, 8, 256
FEWEST_BEFORE_STOP = 8
SAME_SHARE, CLOSE = 0.25, 0.1
PADDING = 65536

Build = Callable[[], Task]


@dataclass
class Weighing:
    """A comparison in progress: its raw rounds so far, and how it goes on."""

    blocks: list[tuple[int, ...]] = field(default_factory=list)
    cpu: list[tuple[int, ...]] = field(default_factory=list)
    hits: list[tuple[bool, ...]] = field(default_factory=list)
    orders: list[tuple[int, ...]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    calls: tuple[int, ...] = ()
    overhead: float = 0.0
    placebo: int | None = None
    seed: int = 0
    stop: str = ""
    spent: float = 0.0

    @property
    def timed(self) -> float:
        """Seconds in blocks so far."""
        return 1e-9 * sum(map(sum, self.blocks))

    def rounds(self) -> Rounds:
        """What was measured, as arrays."""
        return Rounds(
            np.asarray(self.blocks, float) * 1e-9, np.asarray(self.cpu, float) * 1e-9, np.asarray(self.hits, bool),
            np.asarray(self.orders, np.int32), np.asarray(self.groups, np.int32), self.calls, self.placebo, self.overhead, self.seed,
        )  # fmt: skip

    def of_group(self, number: int) -> Rounds:
        """The rounds of the last rebuild alone."""
        first = next(index for index, group in enumerate(self.groups) if group == number)
        return replace(self, blocks=self.blocks[first:], cpu=self.cpu[first:], hits=self.hits[first:], orders=self.orders[first:],
                       groups=self.groups[first:]).rounds()  # fmt: skip


def weigh_arms(
    builds: Sequence[Build],
    timer: Timer,
    settings: Settings,
    seed: int,
    tell: Tell = lambda phase, fraction: None,
    *,
    placebo: Build | None = None,
    suite: int = 1,
    margin: float = MARGIN,
) -> Weighing:
    """Measure arms interleaved until the evidence is there or the budget is spent; `builds` give each arm afresh, the base first.

    `placebo` gives the base once more. `suite` is how many comparisons are decided together: the more there are, the more
    evidence it takes to stop early.
    """
    rng, tell = random.Random(seed), throttled(tell)
    doing = Weighing(seed=seed, placebo=len(builds) if placebo else None)
    makers = [*builds, *([placebo] if placebo else [])]
    plan, start = Plan(settings, suite, margin, timer.rounds), timer.effort()
    with quiet_collector():
        while not doing.stop:
            began = timer.effort()
            tasks, loops, padding = _rebuild(makers, timer, rng)
            number = doing.groups[-1] + 1 if doing.groups else 0
            if not doing.calls:
                doing.calls, doing.overhead = _calls(tasks, loops, timer)
                plan.settle(tasks, loops, doing.calls)
                _steady(loops, doing.calls, timer, start + settings.budget / 10)
            for _ in range(plan.warm):
                for loop, count in zip(loops, doing.calls, strict=True):
                    loop(count)
            built = timer.effort()
            for _ in range(plan.rounds):
                _round(doing, loops, timer, rng, number)
            plan.learn(doing, number, built - began, timer.effort() - built)
            doing.spent = max(timer.effort() - start, doing.timed if plan.fresh else 0.0)
            doing.stop = plan.verdict(doing)
            tell("weighing", min(1.0, doing.spent / settings.budget))
            for task in tasks:
                if task.cleanup:
                    task.cleanup()
            del tasks, loops, padding
            gc.collect(0)
    return doing


def _rebuild(makers: Sequence[Build], timer: Timer, rng: random.Random) -> tuple[list[Task], list[Loop], list[Any]]:
    """Every arm built afresh in drawn order, on a heap that is shifted by random padding, with code objects of its own."""
    padding: list[Any] = []
    tasks: dict[int, Task] = {}
    for arm in rng.sample(range(len(makers)), len(makers)):
        padding += [np.empty(rng.randrange(16, PADDING), np.uint8) for _ in range(rng.randrange(1, 6))]
        tasks[arm] = own_code(makers[arm]())
    ordered = [tasks[arm] for arm in range(len(makers))]
    return ordered, [timer.bind(task) for task in ordered], padding


def own_code(task: Task) -> Task:
    """The task with a copy of its function's code: where code lies is part of the placement, and the interpreter tunes it in place."""
    fn = task.fn
    if not isinstance(fn, FunctionType):
        return task
    moved = FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    moved.__kwdefaults__ = fn.__kwdefaults__
    moved.__dict__.update(fn.__dict__)
    return replace(task, fn=moved)


def _calls(tasks: Sequence[Task], loops: Sequence[Loop], timer: Timer) -> tuple[tuple[int, ...], float]:
    """Calls per block of each arm, the same where they are of about the same speed, and the cost of an empty call.

    Unequal blocks would cost unequal amounts themselves, and that would pass for a difference.
    """
    counts = [1 if single(task) else calibrate(loop, timer) for task, loop in zip(tasks, loops, strict=True)]
    few = min(counts)
    alike = tuple(few if count <= 2 * few else count for count in counts)
    costs = [0.0 if task.measure or not timer.net else empty_cost(task, timer, count) for task, count in zip(tasks, alike, strict=True)]
    return alike, min(costs)


def _steady(loops: Sequence[Loop], calls: Sequence[int], timer: Timer, until: float) -> None:
    """Work until the clock of the device has stopped climbing after an idle time."""
    while not timer.steady() and timer.effort() < until:
        for loop, count in zip(loops, calls, strict=True):
            loop(count)


def _round(doing: Weighing, loops: Sequence[Loop], timer: Timer, rng: random.Random, number: int) -> None:
    """Every arm once in drawn order and once in reverse."""
    order = rng.sample(range(len(loops)), len(loops))
    order += order[::-1]
    took, marks, busy = [], [timer.disturbances()], [timer.busy()]
    for arm in order:
        took.append(loops[arm](doing.calls[arm]))
        busy.append(timer.busy())
        marks.append(timer.disturbances())
    doing.blocks.append(tuple(took))
    doing.cpu.append(tuple(after - before for before, after in pairwise(busy)))
    doing.hits.append(tuple(after > before for before, after in pairwise(marks)))
    doing.orders.append(tuple(order))
    doing.groups.append(number)


class Plan:
    """How many rounds a rebuild gets, and when to stop.

    After a pilot the rounds per rebuild follow from what a rebuild and a round cost and how much each varies: the
    interval shrinks fastest where a second removes the most variance.
    """

    def __init__(self, settings: Settings, suite: int, margin: float, usual: int) -> None:
        self.settings, self.margin, self.usual = settings, margin, usual
        self.least = suite / (ALPHA / 2)
        self.rounds, self.warm, self.most = usual, round(WARM_SHARE * usual), MOST_REBUILDS
        self.fresh = False
        self.wagers: list[Wager] = []
        self.seen: dict[int, list[float]] = {}
        self.costs: list[tuple[float, float]] = []
        self.centres: list[float] = []
        self.scatter: list[float] = []

    def settle(self, tasks: Sequence[Task], loops: Sequence[Loop], calls: Sequence[int]) -> None:
        """First effort, from the fastest of a few probes. A task that times itself is new at every call: no rounds to repeat."""
        self.fresh = all(task.measure for task in tasks)
        probes = 1 if self.fresh else 3
        self.one = 2e-9 * max(1, sum(min(loop(count) for _ in range(probes)) for loop, count in zip(loops, calls, strict=True)))
        if self.fresh:
            self.rounds, self.warm = 1, 0
            return
        share = self.settings.budget / PILOT
        self.rounds = max(1, min(self.usual, int(share / self.one)))
        self.warm = self.warm if self.one * 4 < share else int(self.rounds > 1)

    def learn(self, doing: Weighing, number: int, building: float, measuring: float) -> None:
        """Take the last rebuild into account."""
        last = doing.of_group(number)
        self.costs.append((building, measuring / max(1, self.rounds)))
        heads = [arm for arm in range(1, len(doing.calls)) if arm != doing.placebo]
        self.wagers = self.wagers or [Wager((0.0, math.log1p(self.margin), -math.log1p(self.margin))) for _ in heads]
        for head, wager in zip(heads, self.wagers, strict=True):
            rows, _ = last.rows(head, WALL)
            for row in rows:
                wager.add(row)
                self.seen.setdefault(head, []).append(float(row[0]))
        ratios, clean = last.ratios(0, heads[0], WALL)
        kept = ratios[clean]
        if len(kept) >= 4:
            self.centres.append(float(np.median(kept)))
            self.scatter.append(1.5 * float(np.median(np.abs(kept - np.median(kept)))))
        if number + 1 >= PILOT and not self.fresh and number < 4 * PILOT:
            self.rounds = self._best_rounds()

    def _best_rounds(self) -> int:
        """The split of Kalibera and Jones: the square root of cost over cost times variance over variance."""
        if len(self.centres) < 4:
            return self.rounds
        rebuild, one = (float(np.median([cost[index] for cost in self.costs])) for index in (0, 1))
        within = (math.pi / 2) * float(np.median(self.scatter)) ** 2 / 2
        between = max(float(np.var(self.centres, ddof=1)) - within / self.rounds, 0.05 * within / self.rounds)
        best = math.sqrt(rebuild / max(one, 1e-9) * within / max(between, 1e-18))
        affordable = int(self.settings.budget / FEWEST_REBUILDS / max(one, 1e-9))
        filling = int((self.settings.budget / MOST_REBUILDS - rebuild) / max(one, 1e-9))
        return max(1, min(MOST_ROUNDS, max(self.usual, round(best), filling), max(1, affordable)))

    def verdict(self, doing: Weighing) -> str:
        """Why to stop now, or nothing: every head decided by evidence, the budget spent, or as many rebuilds as anyone needs."""
        done = doing.groups[-1] + 1
        if done >= FEWEST_BEFORE_STOP and self.wagers and all(map(self._decided, self.wagers, self.seen.values(), repeat(doing.spent))):
            return "evidence"
        if done >= self._fewest() and doing.spent * (1 + 1 / done) > self.settings.budget:
            return "budget"
        return "rebuilds" if done >= self.most else ""

    def _decided(self, wager: Wager, seen: Sequence[float], spent: float) -> bool:
        """A difference beyond the margin is certain and its size known well enough, or one within it is certain.

        The latter ends a measurement early only where there is hardly any difference whose direction could still be told.
        """
        differs, not_above, not_below = (value >= self.least for value in wager.highest)
        middle, edge = float(np.median(seen)), math.log1p(self.margin)
        if abs(middle) > edge:
            error, precision = 3 * float(np.std(seen, ddof=1)) / math.sqrt(len(seen)), self.settings.precision
            known = error <= max(2 * precision, 10 * precision * abs(middle))
            return bool(differs and (not_above if middle > 0 else not_below) and known)
        close = abs(middle) < CLOSE * edge
        return bool(not_above and not_below and close and spent >= SAME_SHARE * self.settings.budget)

    def _fewest(self) -> int:
        """Calls that take longer than the budget are still seen a few times."""
        if self.fresh:
            return 6
        return FEWEST_REBUILDS if self.one * 2 * FEWEST_REBUILDS < self.settings.budget else 4
