"""Count the contents of a trace: operators, messages, kernels, tensors, and problems to warn of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard.traces.calls import UniqueCall, added, step_time, unique_calls
from steelyard.traces.nodes import PROCESS_GROUPS, BadTrace, TraceNode
from steelyard.traces.reading import TraceHeader, open_trace
from steelyard.traces.steps import Trace, steps

GROUP_KEYS = ("pg_name", "process_group_name", "group_name")
MOST_PROBLEMS = 20


@dataclass(frozen=True)
class OperatorCount:
    """One operator of a trace: how often it was called, with how many different arguments, and its recorded time in seconds."""

    op: str
    count: int
    calls: Sequence[UniqueCall]
    recorded: float | None = None
    kernels: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """One step: its label, how many nodes and outermost operators it has, and its recorded time in seconds."""

    label: str
    nodes: int
    operators: int
    seconds: float | None = None


@dataclass(frozen=True)
class TraceSummary:
    """Counts of all that is in a trace; tensors, storages and their bytes are those of its largest step.

    `problems` are nodes with invalid arguments, and messages that name no process group.
    """

    path: Path
    header: TraceHeader
    nodes: int = 0
    operators: int = 0
    outermost: int = 0
    communications: int = 0
    triton: int = 0
    kernels: int = 0
    linked: int = 0
    threads: int = 0
    tensors: int = 0
    storages: int = 0
    bytes: int = 0
    dtypes: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[StepTime] = ()
    problems: Sequence[str] = ()

    @property
    def compute(self) -> int:
        """Operators that are neither messages nor Triton kernels."""
        return self.operators - self.communications - self.triton


def summarise(path: Path) -> TraceSummary:
    """Read a trace once and count what is in it, checking every argument of every node."""
    found = _Count()
    with open_trace(path) as reader:
        for part in steps(reader):
            found.add(part)
        header = reader.header
    return replace(found.told(path), header=header)


def operators(parts: Iterable[Trace], *, inner: bool = False) -> list[OperatorCount]:
    """Operators by recorded time, else by count, the largest first; with `inner` also those that ran inside others."""
    calls = added([unique_calls([node for node in part.nodes if node.is_operator] if inner else part.outermost) for part in parts])
    groups: dict[str, list[UniqueCall]] = {}
    for call in calls:
        groups.setdefault(call.op, []).append(call)
    found = []
    for op, members in groups.items():
        times = [call.recorded for call in members]
        recorded = None if None in times else sum(time for time in times if time is not None)
        found.append(OperatorCount(op, sum(call.count for call in members), members, recorded, sum(call.kernels for call in members)))
    return sorted(found, key=lambda item: (-(item.recorded or 0), -item.count, item.op))


def process_groups(node: TraceNode) -> list[Mapping[str, Any]]:
    """The process groups that PyTorch records at the beginning of a trace."""
    text = next((item.value for item in node.inputs if isinstance(item.value, str)), "")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise BadTrace(f"node {node.id} ({node.name}): its process groups are not valid JSON") from None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise BadTrace(f"node {node.id} ({node.name}): its process groups are not a list of objects")
    return data


class _Count:
    """The counts while a trace is read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        self.devices: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.tensors: set[tuple[int, int]] = set()
        self.storages: dict[int, int] = {}
        self.most = (0, 0, 0)
        self.groups: list[Mapping[str, Any]] = []
        self.steps: list[StepTime] = []
        self.problems: list[str] = []

    def add(self, part: Trace) -> None:
        """Count one step, or the nodes outside of steps."""
        outermost = len(part.outermost)
        self.counts["outermost"] += outermost
        if part.label:
            self.steps.append(StepTime(part.label, len(part.nodes), outermost, step_time(part)))
        self.tensors, self.storages = set(), {}
        for node in part.nodes:
            self._node(node)
        self.most = max(self.most, (sum(self.storages.values()), len(self.storages), len(self.tensors)))

    def _node(self, node: TraceNode) -> None:
        self.counts["nodes"] += 1
        self.counts["operators"] += node.is_operator
        self.counts["triton"] += node.is_triton
        self.counts["kernels"] += node.on_device
        self.counts["linked"] += node.time is not None and not node.on_device
        self.threads.add(node.tid)
        try:
            if node.name == PROCESS_GROUPS:
                self.groups += process_groups(node)
            for argument in (*node.inputs, *node.outputs):
                for ref in argument.tensors():
                    if (ref.tensor, ref.storage) not in self.tensors:
                        self.tensors.add((ref.tensor, ref.storage))
                        self.dtypes[ref.dtype] += 1
                        self.devices[ref.device or "not recorded"] += 1
                    self.storages[ref.storage] = max(self.storages.get(ref.storage, 0), (ref.offset + ref.extent) * ref.itemsize)
        except BadTrace as error:
            self._problem(error.what)
        if node.is_communication:
            self.counts["communications"] += 1
            if group_of(node) is None:
                self._problem(f"node {node.id} ({node.name}): it names no process group")

    def _problem(self, text: str) -> None:
        self.counts["problems"] += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def told(self, path: Path) -> TraceSummary:
        """The summary of what was counted."""
        counts = self.counts
        if not counts["nodes"]:
            self._problem("the trace has no nodes")
        more = counts["problems"] - len(self.problems)
        return TraceSummary(
            path, TraceHeader(), counts["nodes"], counts["operators"], counts["outermost"], counts["communications"], counts["triton"],
            counts["kernels"], counts["linked"], len(self.threads - {0}), self.most[2], self.most[1], self.most[0],
            dict(self.dtypes.most_common()), dict(self.devices.most_common()), self.groups, self.steps,
            [*self.problems, *([f"… and {more} more"] if more else [])],
        )  # fmt: skip


def group_of(node: TraceNode) -> str | None:
    """The process group of a message: an attribute in newer traces, an argument that is a pair of texts in older ones."""
    for key in GROUP_KEYS:
        if (name := node.attributes.get(key)) is not None:
            return str(name)
    for argument in node.inputs:
        if argument.kind == "tuple" and argument.value and all(item.kind == "str" for item in argument.value):
            return str(argument.value[0].value)
    return None
