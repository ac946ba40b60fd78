"""Programs that a test cluster is made of: children of whoever starts them, marked, and gone with everything they started when it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MARK = "STEELYARD_FARM_CLUSTER"
"""The variable that everything in a cluster inherits; what has it when a cluster ends is ended too."""
SYSTEM = ("/usr/sbin", "/sbin")
PATIENCE = 60.0


class Missing(Exception):
    """A program that a cluster needs is not installed."""


def program(name: str) -> str:
    """Where a program is; daemons lie in folders that an ordinary user's PATH lacks."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM)))
    if not found:
        raise Missing(f"{name} is not installed; scripts/farm/install.sh installs it")
    return found


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def until(ready: Callable[[], bool], what: str, patience: float = PATIENCE, trouble: Callable[[], str] = lambda: "") -> None:
    """Wait for something, looking a few times a second; an error says what did not come."""
    deadline = time.monotonic() + patience
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {patience:.0f} s\n{trouble()}")
        time.sleep(0.1)


def marked(mark: str) -> list[int]:
    """The processes that have a cluster's mark in their environment, as far as it can be read; a child that ended is none."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def line_of(pid: int) -> bytes:
    """The command line of a process; nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    """The process that a process is below."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def below(root: int, starting: bytes) -> list[int]:
    """The descendants of a process whose command line starts in a way."""
    parents = {int(entry.name): parent_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(pid for pid in found - {root} if line_of(pid).startswith(starting))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@dataclass
class Daemons:
    """The foreground programs of one cluster, in the order in which they were started."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What everything in the cluster has."""
        return os.environ | {MARK: self.mark}

    def start(self, name: str, words: Sequence[str], more: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen[bytes]:
        """A program in the foreground, with what it prints in a log of its own; it ends with us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            given = {"stdin": subprocess.DEVNULL, "stdout": log, **options}
            self.running[name] = subprocess.Popen(
                words, stderr=log, env=self.environment | dict(more or {}), start_new_session=True, preexec_fn=_die_with_parent, **given
            )  # type: ignore[call-overload]
        return self.running[name]

    def log(self, name: str) -> str:
        """The end of what a program printed."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace")[-2000:] if file.exists() else ""

    def kill(self, name: str, sign: int = signal.SIGKILL) -> None:
        """End one at once, and wait for it."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(sign)
        process.wait()

    def stop(self) -> list[int]:
        """End all, the last one first, then whatever else has the mark; gives what had to be killed because nobody had ended it."""
        for name in reversed(list(self.running)):
            process = self.running.pop(name)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return self.sweep()

    def sweep(self) -> list[int]:
        """Kill every process with the mark, again until none is left."""
        left: list[int] = []
        deadline = time.monotonic() + 10
        while (found := marked(self.mark)) and time.monotonic() < deadline:
            left += [pid for pid in found if pid not in left]
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return left


@contextlib.contextmanager
def stopping_on_term() -> Iterator[None]:
    """SIGTERM ends the program as an interrupt does, so that a cluster is stopped however its program is ended."""

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
