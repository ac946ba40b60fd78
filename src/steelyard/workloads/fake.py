"""Scripted work for tests and demonstrations: known times, known faults, on a virtual clock or for real."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steelyard.errors import NotApplicable, NotApplied, Unsupported, unknown
from steelyard.model.define import workload
from steelyard.model.task import Task

AXES: dict[str, list[Any]] = {"seconds": [1e-3], "noise": [0.0], "fault": ["none"], "flops": [0], "bytes": [0]}


@workload("fake/work", axes=AXES, backend="fake", tags=["fake"])
def work(seconds: float, noise: float, fault: str, flops: int, bytes: int, be: Any) -> Task:
    """A task that takes a given time, or fails in a given way."""
    x = be.randn(16, dtype="fp32")

    def fn() -> Any:
        be.spend(seconds, noise)
        answer = misbehave(fault)
        return answer if answer is not None else x * 3 if fault == "wrong" else x * 2

    return Task(fn, flops=flops or None, bytes=bytes or None, reference=lambda: x * 2)


@work.variant("half")
def half(task: Task, be: Any) -> Task:
    """The same answer in half the time."""

    def fn() -> Any:
        before = be.world.clock
        answer = task()
        be.world.clock = before + (be.world.clock - before) // 2
        return answer

    return replace(task, fn=fn)


def misbehave(fault: str) -> Any:
    """Fail like a broken case, with real faults, not simulated ones."""
    if fault not in FAULTS:
        raise unknown("fault", fault, FAULTS)
    return FAULTS[fault]()


def _segfault() -> None:
    import ctypes

    ctypes.string_at(0)


def _leave_child(session: bool) -> None:
    """Start a child that keeps all descriptors of its parent and never ends by itself."""
    if os.fork() == 0:
        if session:
            os.setsid()
        time.sleep(1e6)


def _abandon() -> None:
    _leave_child(session=True)
    os._exit(1)


def _eat() -> None:
    import numpy as np

    hoard = []
    while True:
        hoard.append(np.ones(8 << 20, np.uint8))


def _print_garbage() -> None:
    print("\x00\xff{not json", flush=True)
    os.write(1, b'{"record": "forged"}\n')


def _give_nan() -> Any:
    import numpy as np

    return np.full(16, np.nan, np.float32)


def _raise(error: Exception) -> None:
    raise error


FAULTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "wrong": lambda: None,
    "raise": lambda: _raise(ValueError("told to fail")),
    "segfault": _segfault,
    "exit": lambda: os._exit(0),
    "hang": lambda: time.sleep(1e6),
    "grandchild": lambda: _leave_child(session=False),
    "escape": lambda: _leave_child(session=True),
    "abandon": _abandon,
    "eat": _eat,
    "garbage": _print_garbage,
    "not_a_number": _give_nan,
    "unsupported": lambda: _raise(Unsupported("told to be unsupported", do="nothing")),
    "not_applicable": lambda: _raise(NotApplicable("told to be meaningless")),
    "not_applied": lambda: _raise(NotApplied("told to change nothing")),
}
