"""Whether a call is as fast for values that it has not seen as for those that were timed, and which other threads work for it.

An answer that is kept by its inputs' values, or by a mark that changes with them, is right for every value and fast for the timed
ones alone.
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
"""How many times as long, and how many seconds longer, a call with new values takes before it is looked at again."""
PLAINLY = 10.0
"""The same where there is nothing to compare with: the effect of caches and branch prediction on repeated data is smaller."""
MOST_INPUTS = 4
KEPT = "a call with values that it has not seen takes {:.2g} times as long as one with those that were timed: it probably keeps its answers"
BUSY, SPAN, MOST_CALLS = 0.3, 2e-3, 200
"""CPUs of other threads that are worth a word, and how long they are watched."""


@dataclass(frozen=True)
class Pace:
    """Seconds of the fastest call with values never seen before, and of the fastest that came again, by the input that changed."""

    path: str
    new: float
    seen: float

    @property
    def ratio(self) -> float:
        """How many times as long new values take; 1 where the difference is too short to say."""
        return self.new / self.seen if self.new - self.seen > LEAST and self.seen > 0 else 1.0


def change_of(be: Any, array: Any, path: str, seed: int) -> Callable[[Any], Any] | None:
    """Values for an array that it never had, all of them; None where none are known that are surely harmless."""
    leaf = be.seen(array, path)
    if leaf is None or not math.prod(leaf.shape):
        return None
    if verify.is_floating(leaf.dtype):
        return Sprinkled(seed, 0.5, 0.25, rest=0.5)
    return Reordered(seed, drawn=be.device == "cpu") if in_any_order(leaf.data) else None


def pace(be: Any, task: Task, path: str, seed: int) -> Pace | None:
    """Time calls with new values in one input, each followed by one with the same; None where they cannot be had.

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
    """A call's time; on the host no more than the CPU time that it took, since on a busy machine one call waits and the next does not."""
    be.sync()
    began, spent = clocks.perf_counter(), clocks.process_time()
    task()
    be.sync()
    waited, worked = clocks.perf_counter() - began, clocks.process_time() - spent
    return min(waited, worked) if be.device == "cpu" else waited


def paces(be: Any, task: Task, seed: int) -> list[Pace]:
    """Of one input after the other, until the call keeps its pace for one: what is kept of the others, such as packed weights, is fair."""
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
    """What is wrong with a task whose calls are fast for values that come again alone; nothing where it keeps its pace.

    `plain` gives a task whose own pace says what is usual: sorting sorted data is faster in any implementation.
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
    """CPU seconds that other threads of this process have had so far."""
    return clocks.process_time() - 1e-9 * clocks.thread_time_ns()


def other_threads(be: Any, tasks: Sequence[Task]) -> list[float]:
    """CPUs that other threads of this process keep busy during the calls of each task."""
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
