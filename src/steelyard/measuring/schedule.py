"""Arms in one process: short blocks interleaved in randomised rounds, all arms rebuilt again and again.

Drift cancels inside a round because its order is drawn and mirrored; memory placement cancels because the interval is
taken over rebuilds, each with fresh buffers and fresh code. The base is built twice in every rebuild: the second one
is a placebo, whose distance from the first is the noise floor, and which is also used as a base.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from steelyard import clocks
from steelyard.measuring.clock import Loop, Timer, cut_in
from steelyard.measuring.effort import EVIDENCE, Effort
from steelyard.measuring.moving import scraps
from steelyard.measuring.paired import Finding, Rounds, find
from steelyard.measuring.sample import Tell, calibrate, empty_cost, fitting, quiet_collector, single, throttled
from steelyard.measuring.settling import BUDGET
from steelyard.model.experiment import Settings
from steelyard.model.task import Reading, Task, clean_up, recorded

PROBES = 3
LONG_SHARE, SHORT_OF_TIME = 50, 4
LOOKS = 0.7
"""How likely the first rebuild is checked after its blocks; later ones are checked more rarely."""

Build = Callable[[], Task]
Check = Callable[[Sequence[Task]], None]


class RawRound(NamedTuple):
    """One round, a value for each block in order of time: nanoseconds, CPU nanoseconds, whether something cut in, and the arm.

    `parts` are the times inside each block, by name, if tasks report some.
    """

    took: tuple[int, ...]
    cpu: tuple[int, ...]
    hits: tuple[bool, ...]
    order: tuple[int, ...]
    group: int
    parts: tuple[Mapping[str, float], ...] = ()


@dataclass
class Weighing:
    """A comparison in progress: its raw rounds so far, and how it continues."""

    taken: list[RawRound] = field(default_factory=list)
    calls: tuple[int, ...] = ()
    overhead: float = 0.0
    doubt: float = 0.0
    placebo: int | None = None
    on_cpu: bool = True
    settling: bool = False
    seed: int = 0
    stop: str = ""
    spent: float = 0.0
    looks: int = 1
    share: float = 1.0
    seen: tuple[int, int, float, float] | None = None
    """The rounds at the last look, its number, its share of the error, and the seconds spent by then."""
    broken: str = ""
    """The error that ended the comparison after that look."""

    @property
    def timed(self) -> float:
        """Seconds in blocks so far."""
        return 1e-9 * sum(sum(each.took) for each in self.taken)

    @property
    def parts(self) -> list[str]:
        """The parts that every block of every arm has a time for."""
        blocks = [block for each in self.taken for block in each.parts]
        return sorted(set.intersection(*map(set, blocks))) if blocks else []

    def rounds(self, part: str = "") -> Rounds:
        """What was measured, as arrays; or only the times of one part of each block, which have no CPU times."""
        took, cpu, hits, order, group, parts = zip(*self.taken, strict=True)
        times = [[block[part] for block in blocks] for blocks in parts] if part else took
        return Rounds(
            np.asarray(times, float) * 1e-9, np.asarray(cpu, float) * (0.0 if part else 1e-9), np.asarray(hits, bool),
            np.asarray(order, np.int32), np.asarray(group, np.int32), self.calls, self.placebo, self.overhead, self.seed, self.doubt,
        )  # fmt: skip

    def finding(self, head: int = 1, part: str = "") -> Finding:
        """The result for one head, or one part of its runs, at the look that ended the measurement."""
        return find(self.rounds(part), head, peeked=self.stop == EVIDENCE, share=self.share)

    def fall_back(self, error: Exception) -> None:
        """Return to the state of the last look, so that an error after it does not lose what was found before."""
        assert self.seen is not None
        rounds, self.looks, self.share, self.spent = self.seen
        del self.taken[rounds:]
        self.stop, self.broken = BUDGET, f"{type(error).__name__}: {error}"

    def of_group(self, number: int) -> Rounds:
        """Only the rounds of the last rebuild."""
        first = next(index for index, each in enumerate(self.taken) if each.group == number)
        return replace(self, taken=self.taken[first:]).rounds()


def weigh_arms(
    builds: Sequence[Build],
    timer: Timer,
    settings: Settings,
    seed: int,
    tell: Tell = lambda phase, fraction: None,
    *,
    placebo: Build | None = None,
    suite: int = 1,
    patience: float = math.inf,
    check: Check = lambda tasks: None,
    look: Check | None = None,
) -> Weighing:
    """Measure arms interleaved until the margin is settled or the budget for it is spent; `builds` build each arm again, the base first.

    `placebo` builds the base once more. `suite` is how many comparisons are decided together: the more there are, the more
    evidence is needed to stop early. `patience` is the wall time in seconds for all of it. `check` gets the last rebuild's
    tasks after their timing, `look` those of some rebuilds chosen at random, before they are built again.
    """
    chance = random.SystemRandom()
    rng, tell = random.Random(seed), throttled(tell)
    doing = Weighing(seed=seed, placebo=len(builds) if placebo else None)
    makers = [*builds, *([placebo] if placebo else [])]
    effort, start = Effort(settings, suite, timer.rounds, len(builds) - 1), timer.effort()
    doing.share, began_at = effort.looks.share(0), clocks.monotonic()
    with quiet_collector():
        while not doing.stop:
            arms: Arms | None = None
            try:
                began = timer.effort()
                arms = _rebuild(makers, timer, rng)
                number = doing.taken[-1].group + 1 if doing.taken else 0
                if not doing.calls:
                    _settle(doing, arms, timer, effort, began)
                    makers = makers[: len(doing.calls)]
                    arms.keep(len(makers))
                    _steady(arms.loops, doing.calls, timer, start + settings.budget / 10)
                for _ in range(effort.warm):
                    for arm in arms.order:
                        arms.loops[arm](doing.calls[arm])
                built = timer.effort()
                for _ in range(effort.rounds):
                    _round(doing, arms, timer, rng, number)
            except Exception as error:
                if doing.seen is None:
                    raise
                doing.fall_back(error)
                clean_up(arms.tasks if arms else [])
                break
            doing.spent = max(timer.effort() - start, doing.timed if effort.fresh else 0.0)
            effort.learn(doing.of_group(number), built - began, timer.effort() - built)
            tell(*effort.progress(doing.spent))
            if reason := effort.verdict(number + 1, doing.spent):
                looked, doing.stop = timer.effort(), reason
                doing.seen = doing.seen if reason == EVIDENCE else (len(doing.taken), doing.looks, doing.share, doing.spent)
                findings = [doing.finding(head) for head in range(1, len(builds))]
                doing.stop = effort.conclude(reason, findings, number + 1, doing.spent, clocks.monotonic() - began_at, patience)
                doing.looks, doing.share = effort.look + 1, effort.looks.share(effort.look)
                if doing.stop:
                    check(arms.tasks)
                start += timer.effort() - looked
            if look and not doing.stop and chance.random() < LOOKS / (number + 1):
                looked = timer.effort()
                look(arms.tasks)
                start += timer.effort() - looked
            clean_up(arms.tasks)
            del arms
            gc.collect(0)
    return doing


@dataclass
class Arms:
    """All arms of one rebuild; they are built, bound and warmed up in a drawn order."""

    order: list[int]
    tasks: list[Task]
    loops: list[Loop]
    padding: list[Any]
    readings: list[list[Reading]]
    """What runs of each arm have reported, if its task times itself."""

    def keep(self, count: int) -> None:
        """Keep the first `count` arms and release the rest."""
        clean_up(self.tasks[count:])
        self.tasks, self.loops, self.readings = self.tasks[:count], self.loops[:count], self.readings[:count]
        self.order = [arm for arm in self.order if arm < count]


def _rebuild(makers: Sequence[Build], timer: Timer, rng: random.Random) -> Arms:
    """Build every arm again in drawn order, on a heap shifted by random padding, with its own code objects."""
    padding: list[Any] = []
    tasks: dict[int, Task] = {}
    loops: dict[int, Loop] = {}
    readings: list[list[Reading]] = [[] for _ in makers]
    order = rng.sample(range(len(makers)), len(makers))
    for arm in order:
        padding += scraps(rng)
        tasks[arm] = own_code(makers[arm]())
        loops[arm] = timer.bind(recorded(tasks[arm], readings[arm]))
    numbers = range(len(makers))
    return Arms(order, [tasks[arm] for arm in numbers], [loops[arm] for arm in numbers], padding, readings)


def _settle(doing: Weighing, arms: Arms, timer: Timer, effort: Effort, began: float) -> None:
    """Find out once: calls per block, how long a round takes, and whether CPU time may replace wall time."""
    first = [loop(1) * 1e-9 for loop in arms.loops]
    building = timer.effort() - began
    if max(first) > effort.settings.budget / LONG_SHARE:
        doing.calls = (1,) * len(first)
    else:
        doing.calls, doing.overhead, doing.doubt = _calls(arms.tasks, arms.loops, timer)
        first = [min(loop(count) for _ in range(PROBES)) * 1e-9 for loop, count in zip(arms.loops, doing.calls, strict=True)]
    if doing.placebo is not None and max(first) > effort.settings.budget / SHORT_OF_TIME:
        doing.calls, first, doing.placebo = doing.calls[:-1], first[:-1], None
    unseen = (task.own_threads or (single(task) and (task.reading is None or task.prepare is not None)) for task in arms.tasks)
    doing.on_cpu = not any(unseen)
    doing.settling = max(first) < timer.settles and not any(task.times_itself for task in arms.tasks)
    fresh, heavy = all(task.measure is not None for task in arms.tasks), any(task.heavy for task in arms.tasks)
    effort.settle((3 if doing.settling else 2) * sum(first), building, fresh=fresh, heavy=heavy)


def own_code(task: Task) -> Task:
    """The task with a copy of its function's code: the place of code is part of the layout, and the interpreter tunes it in place."""
    fn = task.fn
    if not isinstance(fn, FunctionType):
        return task
    moved = FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    moved.__kwdefaults__ = fn.__kwdefaults__
    moved.__dict__.update(fn.__dict__)
    return replace(task, fn=moved)


def _calls(tasks: Sequence[Task], loops: Sequence[Loop], timer: Timer) -> tuple[tuple[int, ...], float, float]:
    """Calls per block of each arm, equal if the arms have about the same speed, and the cost of an empty call with its uncertainty.

    Unequal blocks would have unequal overheads, which would look like a difference. If they seem far apart,
    speeds are measured again, in turns: on a device whose clock still climbs the arm that was measured first seems slower.
    """
    counts = [1 if single(task) else calibrate(loop, timer) for task, loop in zip(tasks, loops, strict=True)]
    if max(counts) > 2 * min(counts):
        turns = [[loop(count) / count for loop, count in zip(loops, counts, strict=True)] for _ in range(PROBES)]
        seconds = [min(of_one) * 1e-9 for of_one in zip(*turns, strict=True)]
        counts = [1 if single(task) else fitting(each, timer) for task, each in zip(tasks, seconds, strict=True)]
    few = min(counts)
    alike = tuple(few if count <= 2 * few else count for count in counts)
    if not timer.net or any(task.times_itself for task in tasks):
        return alike, 0.0, 0.0
    overhead, doubt = min(empty_cost(task, timer, count) for task, count in zip(tasks, alike, strict=True))
    return alike, overhead, doubt


def _steady(loops: Sequence[Loop], calls: Sequence[int], timer: Timer, until: float) -> None:
    """Run calls until the clock of the device has stopped climbing after an idle time."""
    while not timer.steady() and timer.effort() < until:
        for loop, count in zip(loops, calls, strict=True):
            loop(count)


def _round(doing: Weighing, arms: Arms, timer: Timer, rng: random.Random, number: int) -> None:
    """Time every arm once in drawn order and once in reverse."""
    loops, parts = arms.loops, list[Mapping[str, float]]()
    order = rng.sample(range(len(loops)), len(loops))
    order += order[::-1]
    took, cpu, hits, last = [], [], [], -1
    for arm in order:
        if doing.settling and arm != last:
            loops[arm](1)
        last, mark, busy = arm, timer.disturbances(), timer.busy()
        took.append(loops[arm](doing.calls[arm]))
        cpu.append((timer.busy() - busy) * doing.on_cpu)
        hits.append(cut_in(timer, mark, busy, took[-1]))
        if own := arms.readings[arm]:
            parts.append(own[-1].parts)
            own.clear()
    doing.taken.append(RawRound(tuple(took), tuple(cpu), tuple(hits), tuple(order), number, tuple(parts)))
