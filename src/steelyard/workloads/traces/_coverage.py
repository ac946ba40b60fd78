"""How much of a recording is replayed: operators, and their shares of the recorded time, of the operations and of the bytes moved."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from steelyard.traces.nodes import SIZES, TensorRef, TraceArgument, TraceNode
from steelyard.traces.steps import Trace
from steelyard.workloads.traces._data import DTYPES
from steelyard.workloads.traces._operators import KnownOperators, NotReplayed, fitted, in_order

MOST_REASONS, MOST_STRANGE = 50, 20
COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
"""Labels around calls of compiled code: a forward pass has both, the second inside the first, and a backward pass the second alone."""
MOVES = frozenset({"aten::copy_", "aten::_foreach_copy_", "aten::clone", "aten::contiguous", "aten::to", "aten::_to_copy"})
UNSEEN_NAME = "compiled code"
UNSEEN = "its own kernels were not recorded: what compiled code computes without operators is not in the trace"


@dataclass(frozen=True)
class NodeCost:
    """The minimum work of one recorded operator, and its recorded time if known."""

    flops: float = 0.0
    bytes: float = 0.0
    seconds: float | None = None


def cost_of(node: TraceNode, trace: Trace, known: KnownOperators) -> NodeCost:
    """Return the cost of an operator from its recorded shapes; without a formula, its flops are those of the operators inside it."""
    seconds = node.time.duration if node.time else None
    return NodeCost(_flops(node, trace, known), _bytes(node, known), seconds)


def _flops(node: TraceNode, trace: Trace, known: KnownOperators) -> float:
    own = _counted(node, known)
    if own is not None:
        return own
    return sum(_flops(child, trace, known) for child in trace.children.get(node.id, ()) if not child.on_device)


def _counted(node: TraceNode, known: KnownOperators) -> float | None:
    """Return the flops by torch's own formula for the operator; None if it has no formula."""
    if not node.is_operator:
        return None
    try:
        found = known.find(node)
    except NotReplayed:
        return None
    count = flop_registry.get(found.packet)
    if count is None:
        return None
    try:
        by_place, by_name = in_order(fitted(node, found))
        values = [_empty(argument) for argument in node.inputs]
        out = [_empty(argument) for argument in node.outputs]
        named = {name: values[place] for name, place in by_name.items()}
        return float(count(*[values[place] for place in by_place], **named, out_val=out[0] if len(out) == 1 else out))
    except Exception:
        return None


def _empty(argument: TraceArgument) -> Any:
    """Return an argument with tensors of the recorded form that have no data."""
    if isinstance(argument.value, TensorRef):
        ref = argument.value
        return torch.empty(ref.shape, dtype=DTYPES.get(ref.dtype, torch.float32), device="meta") if ref.defined else None
    return [_empty(item) for item in argument.value] if isinstance(argument.value, tuple) else argument.value


def _bytes(node: TraceNode, known: KnownOperators) -> float:
    """Return the bytes of an operator's inputs and outputs; 0 for a view, which moves nothing."""
    try:
        if known.find(node).views:
            return 0.0
    except NotReplayed:
        pass
    refs = [ref for argument in (*node.inputs, *node.outputs) for ref in argument.tensors()]
    return float(sum(_touched(ref) for ref in refs))


def _touched(ref: TensorRef) -> int:
    if ref.strides is None:
        return ref.numel * (ref.itemsize or SIZES.get(ref.dtype, 1))
    sizes = (size for size, step in zip(ref.shape, ref.strides, strict=True) if step or not size)
    return math.prod(sizes) * (ref.itemsize or SIZES.get(ref.dtype, 1))


def unseen_code(trace: Trace, known: KnownOperators) -> int:
    """Return how many calls of compiled code have no recorded work: on a host it computes in functions that are not recorded."""
    calls = [node for node in trace.nodes if node.name.startswith(COMPILED)]
    around = {above.id for node in calls for above in trace.above(node)}
    return sum(not any(_tells(inner, known) for _, inner in trace.below(node)) for node in calls if node.id not in around)


def _tells(node: TraceNode, known: KnownOperators) -> bool:
    """Whether a node inside compiled code shows that its work was recorded: a Triton kernel, or an operator that computes on a device.

    On a device the compiler writes only Triton kernels, so code without any consists of operators. A replayed CUDA graph shows
    neither: around it, inputs are only copied.
    """
    if node.is_triton:
        return True
    if not node.is_operator or node.name in MOVES or all(ref.device in ("", "cpu") for item in node.inputs for ref in item.tensors()):
        return False
    try:
        return not known.find(node).views
    except NotReplayed:
        return True


@dataclass(frozen=True)
class Coverage:
    """Which of the recorded operators are replayed, why the rest are not, and the work of each."""

    nodes: Sequence[TraceNode]
    skipped: Mapping[int, str]
    strange: Mapping[tuple[int, int], str]
    costs: Mapping[int, NodeCost]
    unseen: int = 0
    """Number of calls of compiled code whose work was not recorded: each counts as an operator that is not replayed."""

    @functools.cached_property
    def replayed(self) -> int:
        """Number of operators that are replayed."""
        return sum(node.id not in self.skipped for node in self.nodes)

    def share(self, kind: str) -> float | None:
        """Return the replayed operators' share of all flops, bytes or seconds; None if it is unknown."""
        values = [(node, getattr(self.costs[node.id], kind)) for node in self.nodes]
        whole = sum(value for _, value in values if value)
        if not whole or all(value is None for _, value in values):
            return None
        return float(sum(value for node, value in values if value and node.id not in self.skipped) / whole)

    @property
    def of_operators(self) -> float:
        """The share of all operators that is replayed."""
        return self.replayed / (len(self.nodes) + self.unseen) if self.nodes else 0.0

    def least(self) -> float:
        """Return the smallest of all shares, so that no kind of loss hides behind another."""
        known = [self.share(kind) for kind in ("seconds", "flops", "bytes")]
        return min([self.of_operators, *(share for share in known if share is not None)])

    def facts(self) -> dict[str, Any]:
        """Return the coverage as plain data, with the reason for each operator that is not replayed."""
        by_id = {node.id: node for node in self.nodes}
        reasons = Counter((by_id[node].overload, why) for node, why in self.skipped.items() if node in by_id)
        strange = [{"node": node, "operator": by_id[node].overload, "why": why} for (node, _), why in self.strange.items() if node in by_id]
        unseen = [{"operator": UNSEEN_NAME, "count": self.unseen, "why": UNSEEN}] if self.unseen else []
        shares = {"time": self.share("seconds"), "flops": self.share("flops"), "bytes": self.share("bytes")}
        return {
            "operators": len(self.nodes) + self.unseen, "replayed": self.replayed, "shares": {"operators": self.of_operators, **shares},
            "skipped": [
                *unseen, *({"operator": name, "count": count, "why": why} for (name, why), count in reasons.most_common(MOST_REASONS)),
            ],
            "unlike_recorded": strange[:MOST_STRANGE], "unlike_recorded_count": len(strange),
        }  # fmt: skip
