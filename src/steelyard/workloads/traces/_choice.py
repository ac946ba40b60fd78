"""Chooses the nodes of a trace to replay: the outermost operators of a step, and those inside an operator if later ones need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steelyard.traces.comms import SPACE
from steelyard.traces.nodes import TensorRef, TraceNode
from steelyard.traces.steps import ASIDE, Trace

MOST_ROUNDS = 12
Key = tuple[int, int, int, int, str, tuple[int, ...], tuple[int, ...] | None]


def key_of(ref: TensorRef) -> Key:
    """Return the identity of a recorded tensor; its id alone is not enough, because ids are reused and one id can have several shapes."""
    return ref.tensor, ref.storage, ref.offset, ref.numel, ref.dtype, ref.shape, ref.strides


def chosen(trace: Trace, opens: Callable[[TraceNode], bool]) -> tuple[list[TraceNode], int]:
    """Return the nodes to replay in order, and how many operators were opened.

    An operator is opened if a later one reads a tensor that was made only inside it, as a backward pass does: such a tensor must be
    computed, not made up. `opens` returns whether an operator consists only of the operators inside it.
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
    """Return the outermost operators in order, with the operators inside an opened one instead of it. Data loading is left out."""
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
    """Whether a node is a call between ranks: a c10d operator or, in old traces, a node of its backend."""
    return node.is_communication or node.schema.startswith(SPACE)


def has_message(node: TraceNode) -> bool:
    """Whether a communication node is a call: backends also record `init` and `wait`."""
    return not node.is_communication or not any(item.value in ("wait", "init") for item in node.inputs if item.kind == "str")


def _to_open(trace: Trace, nodes: Sequence[TraceNode], opens: Callable[[TraceNode], bool]) -> frozenset[int]:
    """Return the operators whose inner tensors are read by other operators."""
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
