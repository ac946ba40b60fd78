"""Samples one task: calibrate, warm up until flat, then time blocks or calls until precise enough or out of budget."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard import clocks
from steelyard.measuring.clock import Loop, Timer, cut_in, empty
from steelyard.measuring.stats import Interval, median_interval, net_interval, noise_grade, trend
from steelyard.model.experiment import Settings
from steelyard.model.task import Task

LONGEST = 1.5
PROBES, PROBES_SLOW = 8, 3
BINDINGS, PROBES_EMPTY = 5, 4
UNLIKE = 0.25
"""By what share calling an empty builtin may be cheaper than calling the empty Python function used in its place."""
SLOW_CALL = 1.0e-2
WINDOW = 20
FEWEST, FEWEST_SLOW, MOST = 6, 3, 200_000
EVENT_GAP = 0.25
SEEN = 0.1

Tell = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Sample:
    """Raw blocks of one task and how they were taken; every figure is derived from these."""

    seconds: np.ndarray[Any, np.dtype[np.float64]]
    preempted: np.ndarray[Any, np.dtype[np.bool_]]
    calls: int
    overhead: float
    warmup_seconds: float
    warmup_blocks: int
    warmup_end: str
    stop: str
    sampling: str
    doubt: float = 0.0

    @property
    def discarded(self) -> float:
        """Share of blocks hit by an involuntary switch."""
        return float(self.preempted.mean()) if len(self.preempted) else 0.0

    @property
    def usable(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Mask of the blocks that count: the undisturbed ones, or all if too few of these would remain."""
        clean = ~self.preempted
        return clean if clean.sum() >= max(FEWEST, 0.5 * len(clean)) else np.ones_like(clean)

    @property
    def per_call(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Net seconds per call of the usable blocks, in the order they were taken."""
        net: np.ndarray[Any, np.dtype[np.float64]] = self.seconds[self.usable] / self.calls - self.overhead
        return net

    @property
    def interval(self) -> Interval:
        """Median of the net time per call with its 95 % interval, which includes the uncertainty of the overhead."""
        return net_interval(self.per_call, self.doubt)

    @property
    def noise(self) -> str:
        """Letter grade of how quiet the machine was during these blocks."""
        return noise_grade(self.per_call, self.discarded)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the garbage collector out of timed regions of all arms."""
    enabled = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def throttled(tell: Tell) -> Tell:
    """Limit events from the worker to four a second; they are sent only between blocks."""
    last = -math.inf

    def tell_seldom(phase: str, fraction: float | None) -> None:
        nonlocal last
        now = clocks.monotonic()
        if now - last >= EVENT_GAP:
            last = now
            tell(phase, fraction)

    return tell_seldom


def sample(
    task: Task,
    timer: Timer,
    settings: Settings,
    tell: Tell = lambda phase, fraction: None,
    look: Callable[[], None] | None = None,
) -> Sample:
    """Take the raw blocks of one task; `look` is called once between two of them, at an unpredictable moment."""
    loop = timer.bind(task)
    tell = throttled(tell)
    with quiet_collector():
        calls = 1 if settings.sampling == "calls" or single(task) else calibrate(loop, timer)
        overhead, doubt = (0.0, 0.0) if task.times_itself else empty_cost(task, timer, calls)
        warm_seconds, warm_blocks, warm_end = warm_up(loop, timer, calls, settings, tell)
        seconds, preempted, stop = collect(loop, timer, calls, overhead, settings, tell, look)
    return Sample(seconds, preempted, calls, overhead, warm_seconds, warm_blocks, warm_end, stop, settings.sampling, doubt)


def single(task: Task) -> bool:
    """Whether a task gets one call per block: because it must be prepared, cannot be repeated or times itself."""
    return task.times_itself or task.prepare is not None or not task.repeatable


def calibrate(loop: Loop, timer: Timer) -> int:
    """Calls per block so that a block is as long as the timer needs (0.05-0.15 ms on a host), from the fastest of several probes."""
    best = math.inf
    calls, block = 1, timer.block
    for _ in range(24):
        best = fastest(loop, calls) / calls * 1e-9
        if best * calls >= block / 2 or best <= 0 or calls >= timer.most:
            break
        calls = min(timer.most, max(calls + 1, min(calls * 10, math.ceil(block / best))))
    return fitting(best, timer)


def fitting(seconds: float, timer: Timer) -> int:
    """How many calls of this length make a block as long as the timer needs; one if that would be far too long."""
    wanted = min(timer.most, max(1, round(timer.block / max(seconds, 1e-10))))
    return wanted if wanted * seconds <= LONGEST * timer.block else 1


def fastest(loop: Loop, calls: int) -> int:
    """Nanoseconds of the fastest probe; a call far longer than a block needs fewer probes."""
    best = loop(calls)
    for done in range(1, PROBES):
        if done >= PROBES_SLOW and best * 1e-9 > SLOW_CALL:
            break
        best = min(best, loop(calls))
    return best


def empty_cost(task: Task, timer: Timer, calls: int) -> tuple[float, float]:
    """Seconds that the loop adds to each call, from timing an empty function the same way; and how far that may be off.

    The speed of a loop depends on where its code is in memory, so several are bound, and the timed one may be like any of them. Of each
    the fastest block counts: a slow moment here would be subtracted from every block.
    """
    found = []
    for _ in range(BINDINGS):
        loop = timer.bind(empty(task))
        loop(calls)
        found.append(min(loop(calls) for _ in range(PROBES_EMPTY)) / calls * 1e-9)
    overhead, apart = float(np.median(found)), max(found) - min(found)
    return overhead, apart if hasattr(task.fn, "__code__") else max(apart, UNLIKE * overhead)


def warm_up(loop: Loop, timer: Timer, calls: int, settings: Settings, tell: Tell) -> tuple[float, int, str]:
    """Run blocks until a trend test over the last ones is flat and the clock is steady, or a quarter of the budget is spent.

    A requested number of runs includes the first call, which was made before.
    """
    limit = settings.budget / 4 if settings.warmup is None else settings.warmup
    recent: list[float] = []
    spent, blocks = 0.0, 0
    while True:
        took = loop(calls) * 1e-9
        spent, blocks = spent + took, blocks + 1
        recent.append(took)
        if settings.warmup_runs is not None:
            if blocks >= settings.warmup_runs - 1:
                return spent, blocks, "runs"
            continue
        if spent >= limit:
            return spent, blocks, "time"
        due = settings.warmup is None and blocks >= WINDOW and blocks % (WINDOW // 2) == 0
        if due and abs(trend(recent[-WINDOW:])) < 2 and timer.steady():
            return spent, blocks, "flat"
        tell("warm-up", None)


def collect(
    loop: Loop,
    timer: Timer,
    calls: int,
    overhead: float,
    settings: Settings,
    tell: Tell,
    look: Callable[[], None] | None = None,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.bool_]], str]:
    """Time blocks until the interval is as narrow as requested, the budget is spent, or the requested number of runs is done.

    At least a tenth of the budget is always spent, so that a short quiet moment does not look like precision. After `look` the caches
    are not as the task left them, so the next block is not timed.
    """
    look_at = random.SystemRandom().randrange(1, FEWEST_SLOW) if look else 0
    took: list[int] = []
    hit: list[bool] = []
    spent, check_at, budget = 0, 32, settings.budget * 1e9
    while True:
        before, busy = timer.disturbances(), timer.busy()
        elapsed = loop(calls)
        hit.append(cut_in(timer, before, busy, elapsed))
        took.append(elapsed)
        spent, n = spent + elapsed, len(took)
        stop = ""
        if settings.runs is not None:
            stop = "runs" if n >= settings.runs else ""
        elif n >= MOST:
            stop = "blocks"
        elif spent >= budget and n >= (FEWEST if elapsed < budget / 2 else FEWEST_SLOW):
            stop = "budget"
        elif n >= check_at and settings.sampling == "blocks" and spent >= SEEN * budget:
            check_at = max(check_at + 32, round(check_at * 1.3))
            stop = "precision" if precise(took, hit, calls, overhead, settings.precision) else ""
        if look and n == look_at and not stop:
            look()
            loop(calls)
        if stop:
            return np.asarray(took, np.float64) * 1e-9, np.asarray(hit, np.bool_), stop
        tell("sampling", min(1.0, spent / budget) if budget else None)


def precise(took: list[int], hit: list[bool], calls: int, overhead: float, precision: float) -> bool:
    """Whether the interval of the blocks so far is as narrow as requested; more blocks would not make the overhead more precise."""
    so_far = Sample(np.asarray(took, float) * 1e-9, np.asarray(hit, bool), calls, overhead, 0, 0, "", "", "blocks")
    interval = median_interval(so_far.per_call)
    return interval.n >= 32 and interval.relative <= precision
