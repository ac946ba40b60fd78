"""Shell-free commands as tasks: each run is a process, timed by wall clock, with its CPU time and peak memory."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard.backends.base import Backend
from steelyard.errors import SteelyardError, Unsupported
from steelyard.model.task import Reading, Task

FLOOR = 1.05


class Command(Backend):
    """Any program on this machine."""

    name = "command"

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        raise Unsupported("a command has no arrays", do="use another backend for this workload")

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        return None

    def versions(self) -> dict[str, str]:
        return {"python": platform.python_version()}

    def program(self, argv: Sequence[str]) -> Task:
        """A task that runs a program once per call and times it from start to exit."""
        words = [str(word) for word in argv]
        if not words or shutil.which(words[0]) is None:
            raise SteelyardError(f"no program named {words[0] if words else ''!r}", do="give its path, or put it on PATH")
        return Task(measure=lambda: run_once(words), repeatable=False)


def run_once(argv: Sequence[str]) -> Reading:
    """Start, wait, read the kernel's accounts; a failing program is an error, not a fast run."""
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter_ns()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = (time.perf_counter_ns() - start) * 1e-9
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise SteelyardError(_ending(child.returncode), why=errors.read()[-2000:].decode(errors="replace").strip())
    extras = {"user_time": usage.ru_utime, "system_time": usage.ru_stime}
    if usage.ru_maxrss > FLOOR * _own_peak():
        extras["peak_memory"] = usage.ru_maxrss * 1024.0
    return Reading(seconds, extras)


def _own_peak() -> int:
    """A child counts the memory of the process it was forked from, so a smaller peak than that cannot be seen."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _ending(code: int) -> str:
    if code >= 0:
        return f"the command exited with {code}"
    known = -code in set(signal.Signals)
    return f"the command was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"


BACKEND = Command
