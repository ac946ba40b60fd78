"""How busy the machine was with other work while something was timed: the kernel's count of busy CPUs minus our own share."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from steelyard.machine.cpu import ROOT, attempt, read

SHORTEST = 0.1
"""Seconds; the kernel counts in steps of a hundredth, which is too coarse for shorter spans."""
BUSY = (0, 1, 2, 5, 6, 7)
"""Places of user, nice, system, irq, softirq and steal in /proc/stat; the rest is idle, waiting, or already counted."""


@dataclass
class Others:
    """CPUs that other processes, and other guests of the host, kept busy; None if that is unknown."""

    cpus: float | None = None


@contextmanager
def watch_others(root: Path = ROOT, now: Callable[[], float] = time.monotonic) -> Iterator[Others]:
    """Measure what else ran while the body did; a process that we started and that still runs counts as other work."""
    found = Others()
    begun, own, start = busy_seconds(root), own_seconds(), now()
    yield found
    ended, span = busy_seconds(root), now() - start
    if begun is not None and ended is not None and span >= SHORTEST:
        found.cpus = max(0.0, (ended - begun - (own_seconds() - own)) / span)


def busy_seconds(root: Path = ROOT) -> float | None:
    """Seconds that all CPUs together have been busy since the machine was started."""
    words = (read(root, "proc/stat") or "").partition("\n")[0].split()[1:]
    ticks = attempt(os.sysconf, "SC_CLK_TCK")
    if len(words) <= max(BUSY) or not ticks or not all(word.isdecimal() for word in words):
        return None
    return sum(int(words[place]) for place in BUSY) / ticks


def own_seconds() -> float:
    """CPU seconds of this process and of the child processes it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def oom_kills(file: Path = Path("/proc/vmstat")) -> int:
    """How often the kernel has killed a process for lack of memory, since boot or in a control group; 0 if it does not say.

    A SIGKILL counts as such an end only if this number grows.
    """
    with suppress(OSError, ValueError, IndexError):
        words = file.read_text().split()
        return int(words[words.index("oom_kill") + 1])
    return 0
