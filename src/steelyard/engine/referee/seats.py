"""What a stand occupies: its worker with the time it has, its folders, and the file for its outputs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.engine.conversation import Conversation
from steelyard.engine.referee.parcel import SharedMemory
from steelyard.engine.referee.partner import Ended, Partner
from steelyard.model.units import plain as quantity

ROOM = 4
"""Memory for outputs is provided in advance only if this many times as much is free."""


@dataclass(frozen=True)
class Spare:
    """An interpreter that waits for a candidate, with the folder in which it has compiled what Triton needs."""

    talk: Conversation
    triton: str


@dataclass(frozen=True)
class OutputFile:
    """The file for a stand's outputs, used for one after another because new memory takes longer to write to.

    `ready` is how many of its first bytes have memory already.
    """

    path: str
    ready: int
    identity: tuple[int, ...] | None

    @classmethod
    def create(cls, path: Path, size: int, ready: int) -> OutputFile:
        """Make the file; memory is provided for its first `ready` bytes now if there is ample, and for others when they are written."""
        SharedMemory.create(path, size)
        free = os.statvfs(path)
        ready = min(ready, size) if free.f_bavail * free.f_frsize > ROOM * ready else 0
        if ready:
            try:
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, ready)
            except OSError:
                ready = 0
        return cls(str(path), ready, _identity(path))

    @property
    def intact(self) -> bool:
        """Whether it is still the same file, with no other name and of the same size."""
        return _identity(Path(self.path)) == self.identity

    def remove(self) -> None:
        """Remove the file, or what was put in its place."""
        with contextlib.suppress(OSError):
            Path(self.path).unlink()


def _identity(path: Path) -> tuple[int, ...] | None:
    with contextlib.suppress(OSError):
        found = path.stat(follow_symlinks=False)
        return found.st_dev, found.st_ino, found.st_nlink, found.st_mode, found.st_size
    return None


@dataclass(kw_only=True)
class Stander(Partner):
    """A partner that runs a candidate or the reference, with its own folders and a file for its outputs."""

    folders: tuple[Path, ...]
    outputs: OutputFile
    until: float | None = None
    limit: float | None = None
    """When its time is over, and how many seconds it had."""

    def begin(self, module: str, words: Mapping[str, Any], patience: float | None = None) -> Mapping[str, Any]:
        """Start the job, which must be loaded before its time is over."""
        with self._in_time():
            return super().begin(module, words, self._left(patience or self.patience))

    def step(self, do: str, **words: Any) -> tuple[Mapping[str, Any], float]:
        """One step, if there is time for it."""
        with self._in_time():
            patience, self.patience = self.patience, self._left(self.patience)
            try:
                return super().step(do, **words)
            finally:
                self.patience = patience

    def _left(self, patience: float) -> float:
        return patience if self.until is None else min(patience, max(0.0, self.until - time.monotonic()))

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Name the limit if a step ends by it."""
        over = Ended("timeout", f"it was not done within {quantity(self.limit or 0.0, 's')}, the limit for one candidate")
        if self.until is not None and time.monotonic() >= self.until:
            raise over
        try:
            yield
        except Ended as error:
            if error.status == "timeout" and self.until is not None and time.monotonic() >= self.until:
                raise over from None
            raise
