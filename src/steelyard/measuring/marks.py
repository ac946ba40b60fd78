"""Marks around measured calls, by which a tool outside of the process finds them, and what it says finds its case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from steelyard.measuring.fixed import Labels, Range, Sampled, Stopwatch, take
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task

OURS = "steelyard"
"""The first word of our own marks; a dialect has its own."""
PARTS = ("forward", "backward", "forward_backward")


def measured(ranges: str) -> str:
    """The NVTX range of every profiled call; `ranges` is the first word of all labels.

    It is a process range (start/end), which ncu is told by a name with no `/` after it: autograd launches kernels from threads of its
    own, where ranges of the calling thread (push/pop) do not reach. The name has none of the characters that ncu's filters give a
    meaning to.
    """
    return f"{ranges}_measure"


def mark(ranges: str, position: int, part: str) -> str:
    """The NVTX range of one pass of one case of a batch; a workload's own name could mislead."""
    return f"{ranges}_input_{position}_{part}"


def pattern(ranges: str) -> re.Pattern[str]:
    """Finds such a mark among the ranges of a kernel, but not within another label."""
    return re.compile(rf"(?<![\w|.]){re.escape(ranges)}_input_(?P<position>\d+)_(?P<part>{'|'.join(reversed(PARTS))})(?![\w|.])")


def take_marked(position: int, task: Task, fixed: Fixed, watch: Stopwatch, labels: Labels, name: str) -> Sampled:
    """The usual warm-up and calls, with marks around the measured ones."""
    return take(task, fixed, watch, Marked(labels, fixed.ranges, position), name)


@dataclass(frozen=True)
class Marked:
    """Labels whose measured calls carry two more ranges: the one that ncu filters by, and the case's own."""

    labels: Labels
    ranges: str
    position: int = 0

    def range(self, label: str) -> Range:
        """A range of this name, within ours where it is around one measured pass."""
        usual = self.labels.range(label)
        part = next((part for part in ("forward", "backward") if label.endswith(f"|measure|{part}]")), None)
        if part is None:
            return usual
        return Nested(*map(self.tool_range, (measured(self.ranges), mark(self.ranges, self.position, part))), usual)

    def profiler_range(self, label: str) -> Range:
        """One that only traces show."""
        return self.labels.profiler_range(label)

    def tool_range(self, label: str) -> Range:
        """One that only tools from outside see."""
        return self.labels.tool_range(label)


class Nested:
    """Several ranges as one, outermost first; it can be entered again and again."""

    def __init__(self, *ranges: Range) -> None:
        self.parts = ranges

    def __enter__(self) -> None:
        for part in self.parts:
            part.__enter__()

    def __exit__(self, *error: Any) -> None:
        for part in reversed(self.parts):
            part.__exit__(*error)
