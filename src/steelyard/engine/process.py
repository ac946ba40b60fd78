"""Control of processes through the operating system: parents, orphans, trees, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from steelyard.machine.processes import children, tree

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
KEPT_BLOCK = 32 << 20
MARK = "STEELYARD_SESSION"


def die_with_parent() -> None:
    """End this process when its parent dies, so that a worker does not outlive a conductor that was killed."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_orphans(on: bool = True) -> None:
    """Adopt grandchildren whose parents died, so that they can be found and ended."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(on))


def close_to_others() -> None:
    """Forbid other processes of this user to read this one's memory or open its files through /proc; root still may."""
    _prctl(PR_SET_DUMPABLE, 0)


def volunteer_for_oom() -> None:
    """Let the kernel end this process first when memory runs out, and not the user's editor."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def settle_allocator() -> None:
    """Make the allocator independent of what the process did before: verification alone made calls several times faster.

    glibc returns freed blocks to the system until a program has once freed a larger one, and keeps them from
    then on. Here they are kept from the beginning, up to the size (32 MiB) at which glibc stops adapting.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK)
            library.mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BLOCK)


def recycle_memory() -> None:
    """Make the C library reuse freed memory of any size instead of returning it to the system: new memory takes longer to write to."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def stay_awake(fds: Sequence[int], seconds: float) -> None:
    """Look for something to read without sleeping, for so many seconds: a process that sleeps needs about 0.1 ms to wake up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not select.select(fds, [], [], 0)[0]:
        pass


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end(pids: Iterable[int]) -> None:
    """Kill processes; those that are already gone are ignored."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_tree(pid: int, *, itself: bool) -> None:
    """End all descendants, again while new ones appear; stop the root first so that it cannot start more."""
    for _ in range(5):
        found = tree(pid)
        if not found:
            break
        end(found)
    if itself:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        end([pid])


def marked(pid: int, mark: str) -> bool:
    """Whether a process was started under our mark: orphans of other programs are ignored."""
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end_orphans(mark: str, known: Iterable[int]) -> None:
    """End and reap marked processes that this one adopted from a dead worker."""
    keep = set(known)
    for pid in children(os.getpid()):
        if pid not in keep and marked(pid, mark):
            end_tree(pid, itself=True)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
