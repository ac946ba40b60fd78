"""Measures how fast a host is now: fixed arithmetic, hashing and copies on one CPU, in three rounds, in about a second.

Two machines with one description may differ by microcode, clocks or what else runs there; these figures show it. Work is timed by the
thread's own CPU clock; the time it waits for a CPU shows the load of other programs.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable

import numpy as np

from steelyard.engine.farm.wire import Calibrated

ROUNDS, BLOCKS = 3, 8
HASHED, COPIED, COMPUTED = 1 << 20, 16 << 20, 1 << 15


def calibrate(now: Callable[[], float] = time.perf_counter, spent: Callable[[], float] = time.thread_time) -> Calibrated:
    """Return the median seconds of each kind of work in every round, and the share of each round in which other programs had the CPU."""
    seconds: dict[str, list[float]] = {}
    waited: list[float] = []
    for work in (works := _works()).values():
        work()
    for _ in range(ROUNDS):
        began, used = now(), spent()
        for name, work in works.items():
            seconds.setdefault(name, []).append(statistics.median(_timed(work, spent) for _ in range(BLOCKS)))
        whole = now() - began
        waited.append(max(0.0, 1.0 - (spent() - used) / whole) if whole > 0 else 0.0)
    return Calibrated({name: tuple(values) for name, values in seconds.items()}, tuple(waited))


def _timed(work: Callable[[], object], spent: Callable[[], float]) -> float:
    began = spent()
    work()
    return spent() - began


def _works() -> dict[str, Callable[[], object]]:
    """Return the kinds of work; each uses one thread, and only memory that is allocated before it is timed."""
    values, text = np.linspace(0.5, 1.5, COMPUTED), bytes(HASHED)
    source, target = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)

    def arithmetic() -> None:
        found = values
        for _ in range(40):
            found = found * 0.999 + 1e-3

    return {"arithmetic": arithmetic, "hashing": lambda: hashlib.sha256(text).digest(), "copies": lambda: np.copyto(target, source)}
