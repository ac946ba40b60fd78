"""Finds tensors that an operator made but whose values are not recorded: a replay has to make such tensors itself.

`torch.tensor([1, 2])` allocates with a recorded operator, and fills without one. And if the shape of a result depends on values, as
with `nonzero` of a mask, these must give the recorded shape in every iteration.
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
"""In-place operators that do not change a tensor's values."""


@dataclass(frozen=True)
class Outside:
    """Results (node and place) that no recorded call filled, and arguments (node and place among its tensors) that decide shapes."""

    made: frozenset[tuple[int, int]] = frozenset()
    read: frozenset[tuple[int, int]] = frozenset()


def outside_of(nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator]) -> Outside:
    """Return the tensors that the calls of a replay need from outside."""
    called = [node for node in nodes if node.id in found]
    read = frozenset((node.id, place) for node in called for place, _ in decisions(node, found[node.id]))
    return Outside(frozenset(_unfilled(called, found)), read)


def _unfilled(nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator]) -> Iterator[tuple[int, int]]:
    """Yield results with new memory that is read before a call writes to it; views of it are followed."""
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
