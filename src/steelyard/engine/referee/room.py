"""How much memory judging may take, by what the machine has: inputs and outputs are shared between processes, and several draw inputs."""

from __future__ import annotations

import shutil
from pathlib import Path

from steelyard.engine.referee.drawing import MOST
from steelyard.machine.facts import cgroup, memory

MOST_SHARED, SHARE = 2 << 30, 8
"""Bytes of inputs and outputs that are ready at a time at most, and the part of the memory of the machine, its container or a candidate."""


def room_for_calls(limit: int | None, folder: Path) -> int:
    """Return how many bytes of inputs and outputs may be ready in a folder at a time, if candidates have this limit."""
    limits: list[int | None] = [limit, memory()["total"], cgroup()["memory_limit"], shutil.disk_usage(folder).free]
    return min([MOST_SHARED, *(each // SHARE for each in limits if each is not None)])


def room_for_drawers(size: int) -> int:
    """Return how many processes can draw inputs of this size: each has a few of them, in its own memory and in shared memory."""
    free = memory()["available"]
    return MOST if free is None else free // SHARE // max(size, 1)
