"""Starting workers and talking to them: a fresh interpreter, or a fork from the nursery."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from steelyard.engine.process import MARK, end, end_tree
from steelyard.errors import SteelyardError

COMMON = ("numpy.random", "numpy.ma", "steelyard.engine.weigh", "steelyard.backends.numpy")
FORKABLE: dict[str, tuple[str, ...]] = {
    "torch": (*COMMON, "steelyard.backends.torch"),
    "numpy": COMMON,
    "fake": (*COMMON, "steelyard.backends.fake"),
    "command": (*COMMON, "steelyard.backends.command"),
}
"""Backends that survive a fork, and what the nursery imports for them; a child forked from it starts warm."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
LARGEST_LINE = 256 << 20


@dataclass(frozen=True)
class Place:
    """Where a worker runs: interpreter, threads, and environment variables that must be set before it starts."""

    python: str = sys.executable
    threads: int = 1
    flags: tuple[tuple[str, str], ...] = ()
    search_path: str = ""
    device_index: str = ""

    def environment(self, mark: str) -> dict[str, str]:
        """The worker's environment: ours, with thread counts and flags set before any library reads them."""
        found = dict(os.environ) | dict.fromkeys(THREAD_VARIABLES, str(self.threads)) | {MARK: mark}
        found.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        found["PYTHONSAFEPATH"] = "1"
        if self.device_index:
            found |= dict.fromkeys(VISIBLE_DEVICES, self.device_index)
        if self.search_path:
            found["PYTHONPATH"] = self.search_path
        return found | dict(self.flags)


@dataclass
class Ending:
    """How a worker's process ended."""

    code: int | None
    stderr: str

    def __str__(self) -> str:
        if self.code is None:
            return "ended without a known exit code"
        if self.code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-self.code).name}"
        return f"exited with code {self.code} and no answer"


@dataclass
class Worker:
    """A running worker: its process, its pipes, and what it has said so far."""

    pid: int
    commands: IO[str]
    events: int
    stderr: IO[bytes]
    process: subprocess.Popen[bytes] | None = None
    nursery: Nursery | None = None
    pidfd: int | None = None
    _buffer: bytearray = field(default_factory=bytearray)
    jobs: int = 0

    def send(self, job: Mapping[str, Any]) -> None:
        """Hand over one job; a worker that is gone is noticed when its answer is awaited."""
        self.jobs += 1
        with contextlib.suppress(BrokenPipeError):
            self.commands.write(json.dumps(job) + "\n")
            self.commands.flush()

    def messages(self, timeout: float | None) -> Iterator[dict[str, Any] | None]:
        """Everything said until `timeout`; None when the process has ended and all it said was read.

        Death is read from the process itself, not from the end of the pipe, which a grandchild may hold open.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.events, selectors.EVENT_READ)
            if self.pidfd is not None:
                selector.register(self.pidfd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(timeout)}
        dead = self.pidfd in ready if self.pidfd is not None else self._gone()
        closed = self._read() if self.events in ready or dead else False
        yield from self._lines()
        if dead or closed:
            yield None

    def _gone(self) -> bool:
        if self.process is not None:
            return self.process.poll() is not None
        return self.nursery is not None and self.nursery.ended(self.pid, 0) is not None

    def _read(self) -> bool:
        while True:
            try:
                data = os.read(self.events, 1 << 20)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._buffer += data
            if len(self._buffer) > LARGEST_LINE:
                raise SteelyardError("a worker sent a message without end", do="look at what the workload writes to its pipes")

    def _lines(self) -> Iterator[dict[str, Any]]:
        *complete, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in complete:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    yield message

    def stop(self) -> Ending:
        """End the worker and everything it started, and say how it ended."""
        end_tree(self.pid, itself=True)
        return self.wait()

    def leave(self) -> None:
        """Tell an idle worker to go; whoever asked must `see_off` it later."""
        self.send({"do": "quit"})

    def see_off(self) -> None:
        """Wait until a worker that was told to go has gone; it gets no second chance."""
        if self.pidfd is None or not select.select([self.pidfd], [], [], 5.0)[0]:
            end_tree(self.pid, itself=True)
        self.wait()

    def wait(self) -> Ending:
        """Reap the process and close the pipes."""
        code: int | None = None
        if self.process is not None:
            code = self.process.wait()
        elif self.nursery is not None:
            code = self.nursery.ended(self.pid, 5.0)
        self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, self.stderr.tell() - 8000))
        text = self.stderr.read().decode(errors="replace")
        with contextlib.suppress(BrokenPipeError):
            self.commands.close()
        self.stderr.close()
        for fd in (self.events, self.pidfd):
            if fd is not None:
                os.close(fd)
        return Ending(code, text)


@dataclass
class Pipes:
    """Both ends of a worker's channels."""

    command_out: int
    command_in: int
    event_out: int
    event_in: int
    stderr: IO[bytes]

    @classmethod
    def open(cls) -> Pipes:
        command_out, command_in = os.pipe()
        event_out, event_in = os.pipe()
        os.set_blocking(event_out, False)
        return cls(command_out, command_in, event_out, event_in, tempfile.TemporaryFile())

    def worker(self, pid: int, **origin: Any) -> Worker:
        """Close the worker's ends here and keep ours."""
        os.close(self.command_out)
        os.close(self.event_in)
        pidfd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        return Worker(pid, os.fdopen(self.command_in, "w", encoding="utf-8"), self.event_out, self.stderr, pidfd=pidfd, **origin)


def start_fresh(place: Place, mark: str) -> Worker:
    """A worker in a new interpreter: seconds, and clean of everything."""
    pipes = Pipes.open()
    process = subprocess.Popen(
        [place.python, "-m", "steelyard.engine.worker", str(pipes.event_in)],
        stdin=pipes.command_out, stdout=pipes.stderr, stderr=pipes.stderr, pass_fds=(pipes.event_in,),
        env=place.environment(mark), start_new_session=True,
    )  # fmt: skip
    return pipes.worker(process.pid, process=process)


class Nursery:
    """The conductor's handle on a nursery process."""

    def __init__(self, place: Place, modules: tuple[str, ...], mark: str) -> None:
        ours, theirs = socket.socketpair()
        self.control = ours
        self._buffer = b""
        self._codes: dict[int, int] = {}
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [place.python, "-m", "steelyard.engine.nursery", str(theirs.fileno()), *modules],
            stdin=subprocess.DEVNULL, stdout=self.stderr, stderr=self.stderr, pass_fds=(theirs.fileno(),),
            env=place.environment(mark), start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._await("ready")

    def fork(self) -> Worker:
        """A new worker in milliseconds."""
        pipes = Pipes.open()
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [b"fork"], [pipes.command_out, pipes.event_in, pipes.stderr.fileno()])
        return pipes.worker(self._await("forked"), nursery=self)

    def _await(self, word: str) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for message in self._receive(1.0):
                if word in message:
                    return int(message[word])
            if self.process.poll() is not None:
                break
        self.stderr.seek(0)
        tail = self.stderr.read()[-2000:].decode(errors="replace").strip()
        raise SteelyardError(
            "the process that keeps the framework loaded ended", why=tail, do="try --isolate none, or look at the framework's installation"
        )

    def _receive(self, timeout: float) -> list[dict[str, Any]]:
        if not select.select([self.control], [], [], timeout)[0]:
            return []
        data = self.control.recv(65536)
        *complete, self._buffer = (self._buffer + data).split(b"\n")
        messages = [json.loads(line) for line in complete]
        for message in messages:
            if "ended" in message:
                self._codes[message["ended"]] = message["code"]
        if not data:
            self.process.wait()
        return messages

    def ended(self, pid: int, timeout: float) -> int | None:
        """The exit code of a child, once the nursery has reported it."""
        deadline = time.monotonic() + timeout
        while pid not in self._codes:
            left = deadline - time.monotonic()
            self._receive(max(0.0, min(left, 1.0)))
            if left <= 0 or self.process.returncode is not None:
                break
        return self._codes.pop(pid, None)

    def sweep(self, keep: Collection[int] = ()) -> None:
        """End what dead workers left behind; the nursery adopts their orphans."""
        from steelyard.engine.process import children

        for pid in children(self.process.pid):
            if pid not in keep:
                end_tree(pid, itself=True)

    def stop(self) -> None:
        """End the nursery and all its children."""
        end_tree(self.process.pid, itself=True)
        end([self.process.pid])
        self.process.wait()
        self.control.close()
        self.stderr.close()
