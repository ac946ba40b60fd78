"""Values that a recording does not have though an operator made the tensor: a replay has to give such tensors itself.

`torch.tensor([1, 2])` allocates with a recorded operator, and fills without one. And where the shape of a result depends on
values, as of a mask's `nonzero`, they must be such that the recorded shape comes out, in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.traces.nodes import TraceNode
from steelyard.workloads.traces._deciding import decisions, named_tensors
from steelyard.workloads.traces._operators import FoundOperator
from steelyard.workloads.traces._program import outputs_of

EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted", "empty_quantized"}
FORM_ALONE = {
    "detach_", "as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_",
}  # fmt: skip
"""These write to a tensor and leave its values as they are."""


@dataclass(frozen=True)
class Outside:
    """Results (node and place) that nothing recorded filled, and arguments (node and place among its tensors) that decide about shapes."""

    made: frozenset[tuple[int, int]] = frozenset()
    read: frozenset[tuple[int, int]] = frozenset()


def outside_of(nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator]) -> Outside:
    """Look through the calls of a replay in order."""
    called = [node for node in nodes if node.id in found]
    read = frozenset((node.id, place) for node in called for place, _ in decisions(node, found[node.id]))
    return Outside(frozenset(_unfilled(called, found)), read)


def _unfilled(nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator]) -> Iterator[tuple[int, int]]:
    """New memory that is read before a call wrote to it; views of it are followed."""
    waiting: dict[int, tuple[int, int]] = {}
    for node in nodes:
        operator = found[node.id]
        base = operator.schema.name.rpartition("::")[2]
        made = outputs_of(node)
        for name, ref in named_tensors(node, operator):
            if ref.storage not in waiting:
                continue
            writes = name in operator.written and base not in FORM_ALONE
            if writes or operator.schema.name.startswith("c10d::"):
                del waiting[ref.storage]
            elif base not in FORM_ALONE and all(other.storage != ref.storage for other in made):
                yield waiting.pop(ref.storage)
        taken = {ref.storage for _, ref in named_tensors(node, operator)}
        for place, ref in enumerate(made):
            if ref.storage not in taken:
                waiting.pop(ref.storage, None)
            if base in EMPTY and ref.numel:
                waiting[ref.storage] = (node.id, place)
