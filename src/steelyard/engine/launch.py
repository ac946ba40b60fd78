"""Starting workers and talking to them: a fresh interpreter, or a fork from the nursery."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from steelyard import registry
from steelyard.engine.messages import Quit, encode
from steelyard.engine.place import Place
from steelyard.engine.process import end, end_tree
from steelyard.errors import SteelyardError, UsageError
from steelyard.machine.processes import children

COMMON = ("numpy.random", "numpy.ma", "steelyard.engine.weigh", "steelyard.engine.arm", "steelyard.backends.numpy")
"""Modules that every nursery imports, so that a child forked from it starts warm."""
LARGEST_LINE = 256 << 20
NO_RANDOM_ADDRESSES, ASK = 0x0040000, 0xFFFFFFFF
LEAST_STACK = 200 << 20
SHIFTS = 1 << 16
FAREWELL = 5.0


def nursery_modules(backend: str) -> tuple[str, ...]:
    """Return the modules that a nursery imports for a backend."""
    return tuple(dict.fromkeys((*COMMON, registry.backend_module(backend))))


@contextlib.contextmanager
def laid_out(shift: int | None) -> Iterator[None]:
    """Give programs started inside a memory layout that `shift` chooses, instead of a random one: equal shifts give equal layouts.

    The switch and the stack limit, which decides where mapping begins, are both inherited by programs that are started
    inside; they change nothing for running processes.
    """
    if shift is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    before = _personality(ASK)
    resource.setrlimit(resource.RLIMIT_STACK, (LEAST_STACK + shift * resource.getpagesize(), hard))
    _personality(before | NO_RANDOM_ADDRESSES)
    try:
        yield
    finally:
        _personality(before)
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def can_lay_out() -> bool:
    """Whether this system lets us choose memory layouts; the security profiles of some containers do not."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, ValueError, AttributeError), laid_out(SHIFTS):
        return bool(_personality(ASK) & NO_RANDOM_ADDRESSES)
    return False


def _personality(value: int) -> int:
    call = ctypes.CDLL(None).personality
    call.argtypes = [ctypes.c_ulong]
    return int(call(value))


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
    """A running worker: its process, its pipes, and its messages that were not read yet."""

    pid: int
    commands: IO[str]
    events: int
    stderr: IO[bytes]
    process: subprocess.Popen[bytes] | None = None
    nursery: Nursery | None = None
    pidfd: int | None = None
    _buffer: bytearray = field(default_factory=bytearray)
    _searched: int = 0
    _ending: Ending | None = None
    jobs: int = 0

    def send(self, line: str) -> None:
        """Send one line; a worker that has ended is noticed when its answer is awaited."""
        self.jobs += 1
        with contextlib.suppress(BrokenPipeError):
            self.commands.write(line + "\n")
            self.commands.flush()

    def lines(self) -> Iterator[bytes | None]:
        """Yield all messages not read yet; then None if the process has ended and all its messages were read.

        Death is detected from the process itself, not from the end of the pipe, which a grandchild may hold open.
        """
        watched = [fd for fd in (self.events, self.pidfd) if fd is not None]
        ready = select.select(watched, [], [], 0)[0]
        dead = self.pidfd in ready if self.pidfd is not None else self._gone()
        closed = self._read() if self.events in ready or dead else False
        yield from self._whole_lines()
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
                raise SteelyardError("a worker sent an endless message", do="check what the workload writes to its pipes")

    def _whole_lines(self) -> Iterator[bytes]:
        """Yield the complete lines; bytes that were searched for a line end before are not searched again, as a message may be long."""
        end = self._buffer.rfind(b"\n", self._searched) + 1
        complete = bytes(memoryview(self._buffer)[:end])
        del self._buffer[:end]
        self._searched = len(self._buffer)
        yield from filter(None, complete.split(b"\n"))

    @property
    def ended(self) -> bool:
        """Whether the process has ended by itself."""
        return bool(select.select([self.pidfd], [], [], 0)[0]) if self.pidfd is not None else self._gone()

    @property
    def gone(self) -> bool:
        """Whether the process has been reaped."""
        return self._ending is not None

    def stop(self) -> Ending:
        """End the worker and everything it started, and return how it ended; later calls return the same."""
        if self._ending is None:
            end_tree(self.pid, itself=True)
        return self.wait()

    def leave(self) -> None:
        """Ask an idle worker to end; the caller must `see_off` it later."""
        self.send(encode(Quit()))

    def see_off(self) -> None:
        """Wait until a worker that was asked to end has ended; it is killed if it is late."""
        if not self.ends_soon():
            end_tree(self.pid, itself=True)
        self.wait()

    def ends_soon(self) -> bool:
        """Whether the process ends by itself within seconds, so that its exit code is its own."""
        return self.pidfd is not None and bool(select.select([self.pidfd], [], [], FAREWELL)[0])

    def wait(self) -> Ending:
        """Reap the process and close the pipes."""
        if self._ending is not None:
            return self._ending
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
        self._ending = Ending(code, text)
        return self._ending


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


def start_fresh(place: Place, mark: str, shift: int | None = None) -> Worker:
    """Start a worker in a new interpreter, which takes seconds but inherits nothing; `shift` chooses its memory layout."""
    pipes = Pipes.open()
    with laid_out(shift):
        process = subprocess.Popen(
            [place.python, "-P", "-m", "steelyard.engine.worker", f"{pipes.event_in:05}"],
            stdin=pipes.command_out, stdout=pipes.stderr, stderr=pipes.stderr, pass_fds=(pipes.event_in,),
            env=place.environment(mark, shift), cwd=place.folder or None, start_new_session=True,
        )  # fmt: skip
    return pipes.worker(process.pid, process=process)


class Sibling:
    """A process that another one forked, with the part of Popen that a Nursery uses; its pid is 0 until it has reported it."""

    def __init__(self, elder: subprocess.Popen[bytes]) -> None:
        self.elder, self.pid = elder, 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return a code if the process has ended, else None; it does not outlive the process that forked it."""
        if self.returncode is None and (self.elder.poll() is not None or (self.pid and not _alive(self.pid))):
            self.returncode = 1
        return self.returncode

    def wait(self) -> int | None:
        """Return a code at once: the process that forked this one reaps it."""
        self.returncode = 1
        return self.returncode


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Nursery:
    """The conductor's handle on a nursery process; several that are started without waiting load their frameworks in parallel."""

    def __init__(
        self,
        place: Place,
        modules: tuple[str, ...],
        mark: str,
        shift: int | None = None,
        *,
        wait: bool = True,
        twin: socket.socket | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._take(ours, tempfile.TemporaryFile(), place)  # noqa: SIM115
        fds = [end.fileno() for end in (theirs, twin) if end]
        with laid_out(shift):
            self.process: subprocess.Popen[bytes] | Sibling = subprocess.Popen(
                [place.python, "-P", "-m", "steelyard.engine.nursery", ",".join(f"{fd:05}" for fd in fds), *modules],
                stdin=subprocess.DEVNULL, stdout=self.stderr, stderr=self.stderr, pass_fds=fds,
                env=place.environment(mark, shift), start_new_session=True,
            )  # fmt: skip
        theirs.close()
        if wait:
            self.wait()

    @classmethod
    def twins(cls, places: tuple[Place, Place], modules: tuple[str, ...], mark: str, shift: int | None = None) -> tuple[Nursery, Nursery]:
        """Start two nurseries that were one process before they loaded anything, so that both map libraries at the same addresses."""
        ours, theirs = socket.socketpair()
        elder = cls(places[0], modules, mark, shift, wait=False, twin=theirs)
        theirs.close()
        assert isinstance(elder.process, subprocess.Popen)
        younger = cls.__new__(cls)
        younger._take(ours, os.fdopen(os.dup(elder.stderr.fileno()), "rb"), places[1])
        younger.process = Sibling(elder.process)
        return elder, younger

    def _take(self, control: socket.socket, stderr: IO[bytes], place: Place) -> None:
        self.control, self.stderr = control, stderr
        self._buffer = b""
        self._codes: dict[int, int] = {}
        self.control.sendall(json.dumps({"paths": place.paths, "folder": place.folder}).encode() + b"\n")

    def wait(self) -> None:
        """Wait until the nursery can fork."""
        self.process.pid = self._await("ready")

    def fork(self) -> Worker:
        """Fork a new worker, which takes milliseconds."""
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
        self.stop()
        raise UsageError("the process that keeps the framework loaded ended", why=tail, do="check --flag and the framework's installation")

    def _receive(self, timeout: float) -> list[dict[str, Any]]:
        if not select.select([self.control], [], [], timeout)[0]:
            return []
        try:
            data = self.control.recv(65536)
        except ConnectionResetError:
            data = b""
        *complete, self._buffer = (self._buffer + data).split(b"\n")
        messages = [json.loads(line) for line in complete]
        for message in messages:
            if "ended" in message:
                self._codes[message["ended"]] = message["code"]
        if not data:
            self.process.wait()
        return messages

    def ended(self, pid: int, timeout: float) -> int | None:
        """Return the exit code of a child; None if the nursery does not report it in time."""
        deadline = time.monotonic() + timeout
        while pid not in self._codes:
            left = deadline - time.monotonic()
            self._receive(max(0.0, min(left, 1.0)))
            if left <= 0 or self.process.returncode is not None:
                break
        return self._codes.pop(pid, None)

    def sweep(self, keep: Collection[int] = ()) -> None:
        """End processes that dead workers left behind; the nursery adopts their orphans."""
        for pid in children(self.process.pid):
            if pid not in keep:
                end_tree(pid, itself=True)

    def stop(self) -> None:
        """End the nursery and all its children."""
        if self.process.poll() is None and self.process.pid:
            end_tree(self.process.pid, itself=True)
            end([self.process.pid])
        self.process.wait()
        self.control.close()
        self.stderr.close()
