"""Memory limits: enforced by the kernel if a control group can be made, else by watching the process tree."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from steelyard.machine.load import oom_kills
from steelyard.machine.processes import resident, tree

WATCH_EVERY = 0.05
ROOT = Path("/sys/fs/cgroup")


@dataclass
class MemoryLimit:
    """A limit for one worker and everything it starts."""

    limit: int
    group: Path | None = None
    version: int = 0

    @classmethod
    def create(cls, limit: int, name: str) -> MemoryLimit:
        """Make a control group if the system lets us; watching works in any case."""
        for version, parent in _parents():
            folder = parent / f"steelyard-{name}"
            try:
                folder.mkdir()
                _write(folder, "memory.max" if version == 2 else "memory.limit_in_bytes", limit)
                with contextlib.suppress(OSError):
                    _write(folder, "memory.swap.max" if version == 2 else "memory.memsw.limit_in_bytes", 0 if version == 2 else limit)
                return cls(limit, folder, version)
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
        return cls(limit)

    @property
    def kind(self) -> str:
        """How the limit is enforced, as reasons name it."""
        return f"cgroup v{self.version}" if self.group else "watchdog"

    def admit(self, pid: int) -> None:
        """Put a worker under the limit; if the kernel refuses, it is watched instead."""
        if self.group:
            try:
                _write(self.group, "cgroup.procs", pid)
            except OSError:
                self.release()

    def exceeded(self, pid: int) -> bool:
        """Whether the worker's process tree uses more memory than the limit now."""
        return resident([pid, *tree(pid)]) > self.limit

    def struck(self) -> bool:
        """Whether the kernel killed a process because of this limit."""
        return self.kills() > 0

    def kills(self) -> int:
        """Return how many processes the kernel has killed for this limit, by the group's count: a program may hide that its child died."""
        if not self.group:
            return 0
        return oom_kills(self.group / ("memory.events" if self.version == 2 else "memory.oom_control"))

    def release(self) -> None:
        """Remove the group; it must be empty, which takes the kernel a moment after a kill."""
        if self.group:
            for _ in range(50):
                try:
                    self.group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
            self.group = None


def _parents() -> list[tuple[int, Path]]:
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                here = ROOT / path.lstrip("/")
                with contextlib.suppress(OSError):
                    if "memory" in (here / "cgroup.subtree_control").read_text().split():
                        found.append((2, here))
            elif "memory" in controllers.split(","):
                found += [(1, ROOT / "memory" / path.lstrip("/")), (1, ROOT / "memory")]
    return [(version, folder) for version, folder in found if os.access(folder, os.W_OK)]


def _write(folder: Path, name: str, value: int) -> None:
    (folder / name).write_text(str(value))
