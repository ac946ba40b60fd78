"""One step of a trace in memory: its nodes by id, which node ran inside which, and the outermost operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from steelyard import files
from steelyard.errors import UsageError
from steelyard.traces.nodes import STEP, BadTrace, TraceNode
from steelyard.traces.reading import TraceHeader, TraceReader, open_trace

ASIDE = ("DataLoader", "(dynamo_timed)")
"""Parts of the names of labels around work that is not part of a step: loading data, compiling, and tuning kernels."""


@dataclass(frozen=True)
class Trace:
    """The nodes of a step in the order in which they began; `label` is the profiler's name for the step, empty outside of steps.

    A node whose parent is not among them is a root.
    """

    path: Path
    header: TraceHeader
    nodes: Sequence[TraceNode]
    label: str = ""
    by_id: Mapping[int, TraceNode] = field(default_factory=dict, repr=False)

    @cached_property
    def children(self) -> Mapping[int, Sequence[TraceNode]]:
        """By a node's id, the nodes that ran directly inside it, in order."""
        found: dict[int, list[TraceNode]] = {}
        for node in self.nodes:
            if node.parent != node.id and node.parent in self.by_id:
                found.setdefault(node.parent, []).append(node)
        return found

    @cached_property
    def roots(self) -> Sequence[TraceNode]:
        """The nodes that ran inside no other node of the step."""
        return [node for node in self.nodes if node.parent == node.id or node.parent not in self.by_id]

    def above(self, node: TraceNode) -> Iterator[TraceNode]:
        """Yield the nodes around a node, from the inside out."""
        while node.parent != node.id and (outer := self.by_id.get(node.parent)) is not None:
            yield outer
            node = outer

    def below(self, node: TraceNode) -> Iterator[tuple[int, TraceNode]]:
        """Yield a node and all nodes that ran inside it, each with its depth, in order."""
        waiting = [(0, node)]
        while waiting:
            depth, found = waiting.pop()
            yield depth, found
            waiting += [(depth + 1, child) for child in reversed(self.children.get(found.id, ()))]

    @cached_property
    def outermost(self) -> Sequence[TraceNode]:
        """The operators that ran inside no other operator, in order, without work that is not part of the step."""
        found: list[TraceNode] = []
        waiting = list(self.roots)
        while waiting:
            node = waiting.pop()
            if node.is_operator:
                found.append(node)
            elif not any(word in node.name for word in ASIDE):
                waiting += self.children.get(node.id, ())
        return sorted(found, key=lambda node: node.id)

    def subgraph(self, name: str) -> Trace:
        """The first node whose name contains the text, and all nodes that ran inside it."""
        root = next((node for node in self.nodes if name in node.name), None)
        if root is None:
            raise UsageError(f"no node's name contains {name!r}", do="see steelyard trace tree", where=str(self.path))
        return make_trace(self.path, self.header, [node for _, node in self.below(root)], root.name)

    @property
    def resources(self) -> Path | None:
        """The folder beside the trace with kernels and integer tensors, if there is one."""
        for stem in dict.fromkeys((self.path.with_suffix("").name, self.path.name.removesuffix(".gz").removesuffix(".json"))):
            if (folder := self.path.with_name(f"{stem}_resources")).is_dir():
                return folder
        return None


def make_trace(path: Path, header: TraceHeader, nodes: Iterable[TraceNode], label: str = "") -> Trace:
    """A step from its nodes in any order; raise if a node runs inside itself, directly or through others."""
    ordered = sorted(nodes, key=lambda node: node.id)
    trace = Trace(path, header, ordered, label, {node.id: node for node in ordered})
    _check_circles(trace)
    return trace


def _check_circles(trace: Trace) -> None:
    sound: set[int] = set()
    for node in trace.nodes:
        chain: list[int] = []
        inside: set[int] = set()
        at: TraceNode | None = node
        while at is not None and at.id not in sound:
            if at.id in inside:
                raise BadTrace(f"node {at.id} ({at.name[:60]}): it runs inside itself", why="parents form a cycle", where=str(trace.path))
            chain.append(at.id)
            inside.add(at.id)
            at = trace.by_id.get(at.parent) if at.parent != at.id else None
        sound.update(chain)


def steps(reader: TraceReader, mark: str = STEP) -> Iterator[Trace]:
    """Yield the steps of a trace one after another, and the nodes outside of them; only one part is in memory at a time.

    PyTorch writes a step's label when it ends, after everything inside; tools that sort nodes by id write it first. A trace
    without such labels is one step. `mark` is in the name of every label of a step.
    """
    held: list[TraceNode] = []
    label = ""
    begun, most = 0, files.limit(files.RESULTS)
    for node in reader:
        if reader.position - begun > most:
            raise files.too_large(f"a step of {reader.path}", reader.position - begun, most)
        if mark not in node.name:
            held.append(node)
            continue
        inside = [other for other in held if other.id > node.id] if not label else []
        outside = [other for other in held if other.id < node.id] if inside else held
        if outside:
            yield make_trace(reader.path, reader.header, outside, label)
        begun = reader.position
        if inside:
            yield make_trace(reader.path, reader.header, [*inside, node], node.name)
            held, label = [], ""
        else:
            held, label = [node], node.name
    if held:
        yield make_trace(reader.path, reader.header, held, label)


def _read_through(path: Path) -> None:
    """Read all nodes, so that every invalid one is reported."""
    with open_trace(path) as reader:
        for _ in reader:
            pass


def read_trace(path: Path, step: int | None = None, subgraph: str = "") -> Trace:
    """One step of a trace: the first, the one at position `step`, or all of a trace without steps; or the subgraph of that.

    What follows the step is read only if the file does not end as it should, so that a trace that is cut off is still refused.
    """
    with open_trace(path) as reader:
        first: Trace | None = None
        count = 0
        for part in steps(reader):
            if part.label:
                if count == (step or 0):
                    first = part
                    break
                count += 1
            elif count == 0 and step is None and first is None:
                first = part
        header = reader.header
        if first is not None and first.label and not reader.ends_whole():
            _read_through(path)
    if first is None or (step and not first.label):
        have = f"it has {count} step{'' if count == 1 else 's'}" if count else "it has no steps" if first else "it has no nodes"
        raise UsageError(f"no step {step or 0}", why=have, where=str(path))
    found = replace(first, header=header)
    return found.subgraph(subgraph) if subgraph else found
