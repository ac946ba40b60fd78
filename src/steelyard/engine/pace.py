"""Checks whether a call is as fast for new values as for those that were timed, and which other threads work for it.

An answer that is cached by its inputs' values, or by a version that changes with them, is right for every value but fast only for
the timed ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard import clocks
from steelyard.engine.changes import Reordered, Sprinkled, altered, in_any_order, inputs
from steelyard.measuring import verify
from steelyard.model.task import Task

TRIALS, LONG_CALL, TOO_LONG = 3, 0.05, 2.0
SLOWER, LEAST = 3.0, 2e-5
"""A call with new values that takes this many times as long, and this many seconds longer, is measured again."""
PLAINLY = 10.0
"""The limit on the ratio if there is no plain task to compare with; caches and branch prediction on repeated data have less effect."""
MOST_INPUTS = 4
KEPT = "a call with new values takes {:.2g} times as long as one with the timed values: it probably caches its answers"
BUSY, SPAN, MOST_CALLS = 0.3, 2e-3, 200
"""CPUs of other threads from which on they are reported, and the seconds and calls for which they are watched."""


@dataclass(frozen=True)
class Pace:
    """Seconds of the fastest call with new values in one input, and of the fastest call that repeats values."""

    path: str
    new: float
    seen: float

    @property
    def ratio(self) -> float:
        """How many times as long new values take; 1 if the difference is too small to measure."""
        return self.new / self.seen if self.new - self.seen > LEAST and self.seen > 0 else 1.0


def change_of(be: Any, array: Any, path: str, seed: int) -> Callable[[Any], Any] | None:
    """Return a change that gives an array entirely new values; None if no harmless one is known."""
    leaf = be.seen(array, path)
    if leaf is None or not math.prod(leaf.shape):
        return None
    if verify.is_floating(leaf.dtype):
        return Sprinkled(seed, 0.5, 0.25, rest=0.5)
    return Reordered(seed, drawn=be.device == "cpu") if in_any_order(leaf.data) else None


def pace(be: Any, task: Task, path: str, seed: int) -> Pace | None:
    """Time calls with new values in one input, each followed by a call with the same values; None if the input cannot be changed.

    Writing new values empties caches and gives memory back to the system, which slows the next call, whichever it is. So the
    same values are written to a copy before the second call: both come after the same work.
    """
    array, new, seen = inputs(task).get(path), math.inf, math.inf
    for trial in range(TRIALS):
        change = change_of(be, array, path, seed + 10 * trial)
        if change is None:
            return None
        elsewhere = be.copy(array)
        with altered(be, array, change) as done:
            if not done:
                return None
            first = _seconds(be, task)
            be.alter(elsewhere, change)
            again = _seconds(be, task)
        new, seen = min(new, first), min(seen, again)
        if new > LONG_CALL:
            break
    return Pace(path, new, seen)


def _seconds(be: Any, task: Task) -> float:
    """Return a call's time; on the host at most its CPU time, since on a busy machine one call waits and the next does not."""
    be.sync()
    began, spent = clocks.perf_counter(), clocks.process_time()
    task()
    be.sync()
    waited, worked = clocks.perf_counter() - began, clocks.process_time() - spent
    return min(waited, worked) if be.device == "cpu" else waited


def paces(be: Any, task: Task, seed: int) -> list[Pace]:
    """Time one input after the other, until new values of one take no longer: caching what depends on other inputs alone is fair."""
    found: list[Pace] = []
    arrays = [(path, item) for path, item in inputs(task).items() if hasattr(item, "nbytes")]
    for path, _ in sorted(arrays, key=lambda entry: -int(entry[1].nbytes))[:MOST_INPUTS]:
        try:
            took = pace(be, task, path, seed)
        except Exception:
            continue
        if took is None:
            continue
        found.append(took)
        if took.ratio <= SLOWER or took.new > TOO_LONG:
            break
    return found


def kept_by_value(be: Any, task: Task, plain: Callable[[], Task] | None, seed: int) -> str:
    """Return what is wrong with a task whose calls are fast only for repeated values; empty if new values are as fast.

    `plain` gives a task whose own ratio is allowed: sorting sorted data is faster in any implementation.
    """
    found = paces(be, task, seed)
    if not found or min(each.ratio for each in found) <= SLOWER:
        return ""
    again = paces(be, task, seed + 1000)
    if not again or min(each.ratio for each in again) <= SLOWER:
        return ""
    ratio = min(each.ratio for each in (*found, *again))
    usual = max((each.ratio for each in paces(be, plain(), seed)), default=1.0) if plain else PLAINLY / SLOWER
    if ratio <= SLOWER * usual:
        return ""
    return KEPT.format(ratio)


def spare_time() -> float:
    """Return the CPU seconds that other threads of this process have used so far."""
    return clocks.process_time() - 1e-9 * clocks.thread_time_ns()


def other_threads(be: Any, tasks: Sequence[Task]) -> list[float]:
    """Return how many CPUs other threads of this process keep busy during the calls of each task."""
    found = []
    for task in tasks:
        began, before = clocks.perf_counter(), spare_time()
        for _ in range(MOST_CALLS):
            task()
            if clocks.perf_counter() - began > SPAN:
                break
        be.sync()
        found.append(max(0.0, spare_time() - before) / max(clocks.perf_counter() - began, 1e-9))
    return found
