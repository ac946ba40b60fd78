"""Two arms in one process: short blocks interleaved in randomised quads, both arms rebuilt several times.

Drift cancels inside a quad because its order is drawn by a coin; memory placement cancels because the interval is
taken over rebuilds, each with fresh buffers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.measuring.clock import Loop, Timer
from steelyard.measuring.sample import Tell, calibrate, empty_cost, quiet_collector, single, throttled
from steelyard.measuring.stats import Interval, mean_interval
from steelyard.model.experiment import Settings
from steelyard.model.task import Task

REBUILDS = 8
WARM_BLOCKS = 8
FEWEST_QUADS, MOST_QUADS = 6, 5000
CONFIDENCE = 0.99
LEAST_NET = 0.1

Build = Callable[[], Task]


@dataclass(frozen=True)
class Quads:
    """Raw blocks of a paired measurement; column order is time order, `coin` says which arm came first."""

    seconds: np.ndarray[Any, np.dtype[np.float64]]
    preempted: np.ndarray[Any, np.dtype[np.bool_]]
    coin: np.ndarray[Any, np.dtype[np.bool_]]
    rebuild: np.ndarray[Any, np.dtype[np.int32]]
    calls: tuple[int, int]
    seed: int
    overhead: float = 0.0

    def log_ratios(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Two log-ratios head/base per quad, one per adjacent pair of blocks, with the mask of undisturbed ones.

        Both arms have the same overhead taken off: two figures for it would differ by their noise, and that difference
        would pass for one between the arms.
        """
        arm = np.where(self.coin[:, None], [0, 1, 1, 0], [1, 0, 0, 1])
        raw = np.maximum(self.seconds / np.asarray(self.calls)[arm], 1e-12)
        per_call = np.log(np.maximum(raw - self.overhead, LEAST_NET * raw))
        sign = np.where(self.coin, 1.0, -1.0)
        ratios = np.stack([sign * (per_call[:, 1] - per_call[:, 0]), sign * (per_call[:, 2] - per_call[:, 3])], axis=1)
        clean = np.stack([~(self.preempted[:, 0] | self.preempted[:, 1]), ~(self.preempted[:, 2] | self.preempted[:, 3])], axis=1)
        return ratios, clean

    def centres(self) -> list[float]:
        """One robust centre per rebuild; a rebuild with too few undisturbed pairs keeps all of them."""
        ratios, clean = self.log_ratios()
        found = []
        for number in np.unique(self.rebuild):
            mine = self.rebuild == number
            kept = ratios[mine][clean[mine]]
            found.append(float(np.median(kept if len(kept) >= 3 else ratios[mine])))
        return found

    def interval(self) -> Interval:
        """Ratio of head to base with its interval over rebuilds."""
        logs = mean_interval(self.centres(), CONFIDENCE)
        return Interval(math.exp(logs.centre), math.exp(logs.low), math.exp(min(logs.high, 50.0)), logs.n)

    def discarded(self) -> dict[str, float]:
        """Share of each arm's blocks that an involuntary switch hit."""
        base = np.where(self.coin[:, None], self.preempted[:, [0, 3]], self.preempted[:, [1, 2]])
        head = np.where(self.coin[:, None], self.preempted[:, [1, 2]], self.preempted[:, [0, 3]])
        return {"base": float(base.mean()), "head": float(head.mean())}


def weigh_arms(
    builds: tuple[Build, Build], timer: Timer, settings: Settings, seed: int, tell: Tell = lambda phase, fraction: None
) -> Quads:
    """Measure two arms interleaved; `builds` give each arm afresh."""
    rng = random.Random(seed)
    tell = throttled(tell)
    rows: list[tuple[int, int, int, int]] = []
    hits: list[tuple[bool, bool, bool, bool]] = []
    coins: list[bool] = []
    numbers: list[int] = []
    calls, overhead = (0, 0), 0.0
    quads, rebuilds, number = 0, REBUILDS, -1
    while (number := number + 1) < rebuilds:
        tasks: dict[int, Task] = {}
        for arm in rng.sample((0, 1), 2):
            tasks[arm] = builds[arm]()
        loops = (timer.bind(tasks[0]), timer.bind(tasks[1]))
        with quiet_collector():
            if not quads:
                calls = _alike(_calls(tasks[0], loops[0], timer), _calls(tasks[1], loops[1], timer))
                overhead = min(_overhead(tasks[0], timer, calls[0]), _overhead(tasks[1], timer, calls[1]))
                rebuilds, quads = _effort(tasks, loops, calls, settings)
            for _ in range(WARM_BLOCKS if quads > FEWEST_QUADS else int(quads > 1)):
                loops[0](calls[0])
                loops[1](calls[1])
            for done in range(quads):
                coin = rng.random() < 0.5
                row, hit = _quad(loops if coin else loops[::-1], calls if coin else calls[::-1], timer)
                rows.append(row)
                hits.append(hit)
                coins.append(coin)
                numbers.append(number)
                tell("weighing", (number + (done + 1) / quads) / rebuilds)
        for task in tasks.values():
            if task.cleanup:
                task.cleanup()
    return Quads(
        np.asarray(rows, float) * 1e-9, np.asarray(hits, bool), np.asarray(coins, bool), np.asarray(numbers, np.int32),
        calls, seed, overhead,
    )  # fmt: skip


def _overhead(task: Task, timer: Timer, calls: int) -> float:
    return 0.0 if task.measure else empty_cost(task, timer, calls)


def _calls(task: Task, loop: Loop, timer: Timer) -> int:
    return 1 if single(task) else calibrate(loop, timer)


def _alike(base: int, head: int) -> tuple[int, int]:
    """Arms of about the same speed get blocks of the same number of calls, so that what a block costs is the same for both."""
    few = min(base, head)
    return (few, few) if max(base, head) <= 2 * few else (base, head)


def _effort(tasks: dict[int, Task], loops: tuple[Loop, Loop], calls: tuple[int, int], settings: Settings) -> tuple[int, int]:
    """Rebuilds and quads in each that fill the budget, from the fastest of a few probes of both arms.

    A task that times itself, such as a program, is new at every call, so each of its quads is a rebuild of its own.
    """
    fresh = all(task.measure for task in tasks.values())
    probes = 1 if fresh else 3
    quad = 2e-9 * max(1, sum(min(loop(count) for _ in range(probes)) for loop, count in zip(loops, calls, strict=True)))
    affordable = int(settings.budget / quad)
    if fresh:
        return min(max(FEWEST_QUADS, affordable), 200), 1
    return REBUILDS, min(MOST_QUADS, max(1 if quad > settings.budget / 8 else FEWEST_QUADS, affordable // REBUILDS))


def _quad(
    loops: tuple[Loop, Loop], calls: tuple[int, int], timer: Timer
) -> tuple[tuple[int, int, int, int], tuple[bool, bool, bool, bool]]:
    (first, second), (few, many) = loops, calls
    d0 = timer.disturbances()
    a = first(few)
    d1 = timer.disturbances()
    b = second(many)
    d2 = timer.disturbances()
    c = second(many)
    d3 = timer.disturbances()
    d = first(few)
    d4 = timer.disturbances()
    return (a, b, c, d), (d1 > d0, d2 > d1, d3 > d2, d4 > d3)
