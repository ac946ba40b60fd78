"""Scripted work for tests and demonstrations: known times, known faults, on a virtual clock or for real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from steelyard.errors import NotApplicable, NotApplied, Unsupported
from steelyard.model.define import workload
from steelyard.model.task import Task

AXES: dict[str, list[Any]] = {"seconds": [1e-3], "noise": [0.0], "fault": ["none"], "flops": [0], "bytes": [0]}


@workload("fake/work", axes=AXES, backend="fake", tags=["fake"])
def work(seconds: float, noise: float, fault: str, flops: int, bytes: int, be: Any) -> Task:
    """A task that takes the time it is told to, or fails in the way it is told to."""
    x = be.randn(16, dtype="fp32")

    def fn() -> Any:
        be.spend(seconds, noise)
        return misbehave(fault) or (x * 2 if fault != "wrong" else x * 3)

    return Task(fn, flops=flops or None, bytes=bytes or None, reference=lambda: x * 2)


@work.variant("half")
def half(task: Task, be: Any) -> Task:
    """The same answer in half the time."""
    return replace(task, fn=_halved(task, be))


def _halved(task: Task, be: Any) -> Any:
    def fn() -> Any:
        before = be.world.clock
        answer = task()
        be.world.clock = before + (be.world.clock - before) // 2
        return answer

    return fn


def misbehave(fault: str) -> Any:
    """Do what a broken case does; real faults, not simulated ones."""
    if fault == "raise":
        raise ValueError("told to fail")
    if fault == "segfault":
        import ctypes

        ctypes.string_at(0)
    elif fault == "exit":
        os._exit(0)
    elif fault == "hang":
        time.sleep(1e6)
    elif fault == "grandchild":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"], close_fds=False)
    elif fault == "escape":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"], close_fds=False, start_new_session=True)
    elif fault == "eat":
        hoard = []
        while True:
            hoard.append(np.ones(8 << 20, np.uint8))
    elif fault == "garbage":
        print("\x00\xff{not json", flush=True)
        os.write(1, b'{"record": "forged"}\n')
    elif fault == "nan":
        return np.full(16, np.nan, np.float32)
    elif fault == "unsupported":
        raise Unsupported("told to be unsupported", do="nothing")
    elif fault == "not_applicable":
        raise NotApplicable("told to be meaningless")
    elif fault == "not_applied":
        raise NotApplied("told to change nothing")
    return None
