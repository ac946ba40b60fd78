"""Trees of processes and their resident memory, from the kernel's own lists."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path


def children(pid: int) -> list[int]:
    """Direct children, zombies included, from the kernel's own list if it has one."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  # a process with a GPU has dozens, and pathlib is three times as slow
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as listed:  # noqa: PTH123
                found += map(int, listed.read().split())
    except FileNotFoundError:
        return found if sys.platform == "linux" else _children_by_scan(pid)
    except OSError:
        return _children_by_scan(pid)
    return found


def _children_by_scan(pid: int) -> list[int]:
    import subprocess

    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def tree(pid: int) -> list[int]:
    """All descendants, nearest first."""
    found, queue = [], children(pid)
    while queue:
        child = queue.pop(0)
        found.append(child)
        queue += children(child)
    return found


def resident(pids: Iterable[int]) -> int:
    """Resident bytes of several processes together."""
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
    return total
