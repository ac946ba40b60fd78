"""Shell-free commands as tasks: each run is a process, timed by wall clock, with its CPU time and peak memory."""

from __future__ import annotations

import functools
import os
import platform
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard import clocks
from steelyard.backends.base import Backend
from steelyard.errors import SteelyardError, Unsupported
from steelyard.machine.load import oom_kills
from steelyard.model.task import Reading, Task

ABOUT = {"forks": True}
FLOOR = 1.05
GUARD = 'read -r line || kill -s KILL -- "-$0"'


class OutOfMemory(SteelyardError):
    """Raised when the kernel ended the program because memory, or its share of it, ran out."""


class Command(Backend):
    """Any program on this machine."""

    name = "command"

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        raise Unsupported("a command has no arrays", do="use another backend for this workload")

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        return None

    def versions(self) -> dict[str, str]:
        return {"python": platform.python_version()}

    def program(self, argv: Sequence[str], prepare: str = "") -> Task:
        """Return a task that runs a program once per call and times it from start to exit, after running `prepare` untimed."""
        words = [str(word) for word in argv]
        if not words or shutil.which(words[0]) is None:
            raise SteelyardError(f"no program named {words[0] if words else ''!r}", do="give its path, or put it on PATH")
        watch(os.getpid()).keep()

        def run() -> Reading:
            if prepare:
                prepare_run(prepare)
            return run_once(words)

        return Task(measure=run, repeatable=False)


class Guard:
    """A sleeping shell that ends this worker's process group when the worker is killed; the program would outlive it otherwise.

    A signal from the kernel at a parent's death needs code in the child before it starts, which slows down what is timed.
    The conductor ends a guard with everything else that a case left behind, so each program makes sure that there is one.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start the guard if it is not running; a process that leads no session, as in a test, has no group of its own to end."""
        shell = shutil.which("sh")
        if shell and os.getsid(0) == os.getpid() and (self.process is None or self.process.poll() is not None):
            self.process = subprocess.Popen(
                [shell, "-c", GUARD, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip


@functools.cache
def watch(pid: int) -> Guard:
    """Return the one guard of a process; the cache keeps it for as long as the process lives."""
    return Guard()


def prepare_run(line: str) -> None:
    """Run the preparing shell command before a run; an unprepared run would measure something else, so a failure ends the case."""
    done = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        said = done.stderr[-2000:].decode(errors="replace").strip()
        raise SteelyardError(_ending(done.returncode, f"the preparation {line!r}"), why=said)


def run_once(argv: Sequence[str]) -> Reading:
    """Run a program and return its time, CPU time and peak memory; a failing program is an error, not a fast run."""
    killed = oom_kills()
    with tempfile.TemporaryFile() as errors:
        start = clocks.perf_counter_ns()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = (clocks.perf_counter_ns() - start) * 1e-9
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            said = errors.read()[-2000:].decode(errors="replace").strip()
            if child.returncode == -signal.SIGKILL and oom_kills() > killed:
                raise OutOfMemory("the kernel ended the command because it used too much memory", why=said)
            raise SteelyardError(_ending(child.returncode), why=said)
    extras = {"user_time": usage.ru_utime, "system_time": usage.ru_stime}
    if usage.ru_maxrss > FLOOR * _own_peak():
        extras["peak_memory"] = usage.ru_maxrss * 1024.0
    return Reading(seconds, extras)


def _own_peak() -> int:
    """Return this process's peak memory: a forked child's count begins with it, so a smaller peak of the child cannot be seen."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _ending(code: int, what: str = "the command") -> str:
    if code >= 0:
        return f"{what} exited with {code}"
    known = -code in set(signal.Signals)
    return f"{what} was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"


BACKEND = Command
