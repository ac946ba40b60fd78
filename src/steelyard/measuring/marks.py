"""Marks around measured calls, by which an external profiler finds them, and by which its output is assigned to cases."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

OURS = "steelyard"
"""The first word of our own marks; a dialect has its own."""
PARTS = ("forward", "backward", "forward_backward")


def measured(ranges: str) -> str:
    """Return the name of the NVTX range around every profiled call; `ranges` is the first word of all labels.

    It is a process range (start/end), which ncu selects by a name with no `/` after it: autograd launches kernels from its own
    threads, which ranges of the calling thread (push/pop) do not cover. The name has no characters with a meaning in ncu's filters.
    """
    return f"{ranges}_measure"


def mark(ranges: str, position: int, part: str) -> str:
    """Return the name of the NVTX range of one pass of one case in a batch: its number, since a workload's own name could mislead."""
    return f"{ranges}_input_{position}_{part}"


def around(ranges: str, position: int, part: str) -> tuple[str, str]:
    """Return the names of the two ranges around a measured call: the one that ncu filters by, and the case's own."""
    return measured(ranges), mark(ranges, position, part)


def pattern(ranges: str) -> re.Pattern[str]:
    """Return the pattern that finds a mark of a case among the ranges of a kernel, but not within another label."""
    return re.compile(rf"(?<![\w|.]){re.escape(ranges)}_input_(?P<position>\d+)_(?P<part>{'|'.join(reversed(PARTS))})(?![\w|.])")


class Nested:
    """Several ranges as one, outermost first; it can be entered many times."""

    def __init__(self, *ranges: AbstractContextManager[Any]) -> None:
        self.parts = ranges

    def __enter__(self) -> None:
        for part in self.parts:
            part.__enter__()

    def __exit__(self, *error: Any) -> None:
        for part in reversed(self.parts):
            part.__exit__(*error)
