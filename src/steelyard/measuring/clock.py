"""Timers: how long a block of calls took, and whether anything disturbed it."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from itertools import repeat
from types import FunctionType
from typing import Protocol

from steelyard import clocks
from steelyard.model.task import Task

Loop = Callable[[int], int]
PATIENCE = 6.0


class Timer(Protocol):
    """Binds a task to a loop that runs n calls and returns nanoseconds.

    `disturbances` counts reasons to discard a block; `steady` says whether the clock has settled after an idle time; `effort`
    is what counts against a budget, in seconds since some moment; `busy` is this thread's CPU time in nanoseconds, or 0 where
    that says nothing about the task. A block should last `block` seconds with at most `most` calls in it; `net` says whether
    the cost of the loop itself is subtracted. `rounds` is the usual number of rounds per rebuild in a comparison. When the arm
    changes, a call before a block shorter than `settles` is not timed, because it finds caches and predictors as another arm
    left them.
    """

    block: float
    most: int
    net: bool
    rounds: int
    settles: float

    def bind(self, task: Task) -> Loop: ...

    def disturbances(self) -> int: ...

    def steady(self) -> bool: ...

    def effort(self) -> float: ...

    def busy(self) -> int: ...


class HostTimer:
    """The monotonic clock of the host, with the kernel's count of involuntary switches as the cause for discards."""

    block = 1e-4
    most = 1_000_000
    net = True
    rounds = 8
    settles = 5e-4

    def __init__(self, now: Callable[[], int] = clocks.perf_counter_ns, threads: int = 1) -> None:
        self.now, self.threads = now, threads
        self._began = (clocks.process_time(), clocks.perf_counter())
        self._who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF) if threads == 1 else resource.RUSAGE_SELF

    def disturbances(self) -> int:
        return resource.getrusage(self._who).ru_nivcsw

    def steady(self) -> bool:
        """Return True, because a host gives no sign that can be trusted; the trend test decides alone."""
        return True

    def busy(self) -> int:
        return clocks.thread_time_ns() if self.threads == 1 else 0

    def effort(self) -> float:
        """Return CPU time, which other load does not stretch; a share of wall time counts too, or a task that sleeps would never end."""
        wall = clocks.perf_counter() - self._began[1]
        return wall if self.threads > 1 else max(clocks.process_time() - self._began[0], wall / PATIENCE)

    def bind(self, task: Task) -> Loop:
        """Return a loop with nothing in it but the call; the loop's own cost is measured with an empty call and subtracted."""
        loop = self._self_timed(task) if task.times_itself else _own_code(self._timed(task))
        return scoped(loop, task)

    def _timed(self, task: Task) -> Loop:
        fn, args, kwargs, now, prepare = task.fn, task.args, task.kwargs, self.now, task.prepare
        if fn is None:
            raise TypeError("a task needs fn or measure")

        def bare(n: int) -> int:
            turns = repeat(None, n)
            start = now()
            for _ in turns:
                fn()
            return now() - start

        def with_args(n: int) -> int:
            turns = repeat(None, n)
            start = now()
            for _ in turns:
                fn(*args)
            return now() - start

        def with_kwargs(n: int) -> int:
            turns = repeat(None, n)
            start = now()
            for _ in turns:
                fn(*args, **kwargs)
            return now() - start

        if prepare is not None:
            return _prepared(task, prepare, now)
        return with_kwargs if kwargs else with_args if args else bare

    def _self_timed(self, task: Task) -> Loop:
        def loop(n: int) -> int:
            seconds = sum(task.timed_run().seconds for _ in range(n))
            if not 0 < seconds < math.inf:
                raise ValueError(f"a task that times itself reported {seconds} s")
            return round(1e9 * seconds)

        return loop


LONG, SLIGHT = 10_000_000, 0.005
"""A block of at least LONG nanoseconds counts as undisturbed if the thread was off the CPU for at most SLIGHT of it."""


def cut_in(timer: Timer, mark: int, busy: int, took: int) -> bool:
    """Whether something took the CPU away since `mark` and `busy` were read.

    A block of a second always contains some switch, so in a long block switches count only if the thread was kept off the CPU for
    a noticeable share of it.
    """
    if timer.disturbances() <= mark:
        return False
    own = timer.busy() - busy
    return not (took >= LONG and own > 0 and took - own <= SLIGHT * took)


class WaitingTimer(HostTimer):
    """The host's clock for calls that wait for work of other threads.

    Those threads and ours preempt each other by design, and their CPU time is not this thread's, so neither is used.
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads=max(2, threads))

    def disturbances(self) -> int:
        return 0


def _own_code(loop: Loop) -> Loop:
    """Return the loop with bytecode of its own: the interpreter tunes a call site to its first callee, which would slow a second task."""
    return (
        FunctionType(loop.__code__.replace(), loop.__globals__, loop.__name__, None, loop.__closure__)
        if isinstance(loop, FunctionType)
        else loop
    )


def _prepared(task: Task, prepare: Callable[[], None], now: Callable[[], int]) -> Loop:
    fn, args, kwargs = task.fn, task.args, task.kwargs
    assert fn is not None

    def loop(n: int) -> int:
        spent = 0
        for _ in repeat(None, n):
            prepare()
            start = now()
            fn(*args, **kwargs)
            spent += now() - start
        return spent

    return loop


def scoped(loop: Loop, task: Task) -> Loop:
    """Return the loop inside the task's scope, which is entered once around a block."""
    scope = task.scope
    if scope is None:
        return loop

    def inside(n: int) -> int:
        with scope():
            return loop(n)

    return inside


def empty(task: Task) -> Task:
    """Return a task that does nothing, to measure the cost of the loop itself.

    For a Python function it is an empty one with the same signature. A builtin is cheaper to call than any Python function, so
    an empty one without arguments stands for it.
    """
    prepare = None if task.prepare is None else _nothing
    if not hasattr(task.fn, "__code__"):
        return Task(_nothing, prepare=prepare)
    names = (*(f"argument_{index}" for index in range(len(task.args))), *task.kwargs)
    code = _nothing.__code__.replace(co_argcount=len(names), co_nlocals=len(names), co_varnames=names)
    return Task(FunctionType(code, {}), task.args, task.kwargs, prepare=prepare)


def _nothing() -> None:
    return None
