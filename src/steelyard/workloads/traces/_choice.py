"""Which nodes of a trace are replayed: the outermost operators of a step, and inside those whose inner tensors are needed later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steelyard.traces.comms import SPACE
from steelyard.traces.nodes import TensorRef, TraceNode
from steelyard.traces.steps import ASIDE, Trace

MOST_ROUNDS = 12
Key = tuple[int, int, int, int, str, tuple[int, ...], tuple[int, ...] | None]


def key_of(ref: TensorRef) -> Key:
    """The identity of a recorded tensor: ids are used again, and one id may be seen in several shapes."""
    return ref.tensor, ref.storage, ref.offset, ref.numel, ref.dtype, ref.shape, ref.strides


def chosen(trace: Trace, opens: Callable[[TraceNode], bool]) -> tuple[list[TraceNode], int]:
    """The nodes to replay in order, and how many operators were opened for them.

    An operator is opened where a later one reads a tensor that only its inside made, as a backward pass does: what it needs must be
    computed, not made up. `opens` says whether an operator is nothing but the operators inside of it.
    """
    opened: frozenset[int] = frozenset()
    for _ in range(MOST_ROUNDS):
        nodes = outermost(trace, opened)
        more = _to_open(trace, nodes, opens)
        if not more - opened:
            break
        opened |= more
    return nodes, len(opened)


def outermost(trace: Trace, opened: frozenset[int]) -> list[TraceNode]:
    """The outermost operators in order; one that is opened gives those inside of it in its place. Loaded data is left out."""
    found: list[TraceNode] = []
    waiting = [node for node in trace.roots if not node.on_device]
    while waiting:
        node = waiting.pop()
        if node.on_device or any(word in node.name for word in ASIDE):
            continue
        if speaks(node):
            found += [node] if has_message(node) else []
            waiting += [child for child in trace.children.get(node.id, ()) if child.schema.startswith(SPACE)]
        elif node.is_operator and node.id not in opened:
            found.append(node)
        else:
            waiting += trace.children.get(node.id, ())
    return sorted(found, key=lambda node: node.id)


def speaks(node: TraceNode) -> bool:
    """Whether a node is a call between ranks: an operator of c10d, or in old traces what its backend wrote of it."""
    return node.is_communication or node.schema.startswith(SPACE)


def has_message(node: TraceNode) -> bool:
    """Whether there is something to call: a backend also records that it began, and waits."""
    return not node.is_communication or not any(item.value in ("wait", "init") for item in node.inputs if item.kind == "str")


def _to_open(trace: Trace, nodes: Sequence[TraceNode], opens: Callable[[TraceNode], bool]) -> frozenset[int]:
    """The operators whose inner tensors others read."""
    inner: dict[Key, int] = {}
    found = set()
    for node in nodes:
        for ref in (ref for argument in node.inputs for ref in argument.tensors()):
            maker = inner.get(key_of(ref))
            if maker is not None and maker not in found and opens(trace.by_id[maker]):
                found.add(maker)
        for _, child in trace.below(node):
            inner |= {key_of(ref): node.id for argument in child.outputs for ref in argument.tensors()}
        for ref in (ref for argument in (*node.outputs, *node.inputs) for ref in argument.tensors()):
            inner.pop(key_of(ref), None)
    return frozenset(found)
