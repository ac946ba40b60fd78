"""What calls require of the values of given tensors: indices in range, offsets that grow, positive numbers under a root."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steelyard.traces.nodes import TensorRef
from steelyard.workloads.traces._deciding import Bounds, decisions
from steelyard.workloads.traces._operators import FoundOperator
from steelyard.workloads.traces._program import ReplayedCall, ReplayProgram, Several, Slot, slots_by_place, slots_in

SAME_VALUES = {
    "view", "_unsafe_view", "reshape", "slice", "select", "unsqueeze", "squeeze", "expand", "expand_as", "permute", "transpose", "t",
    "contiguous", "clone", "detach", "alias", "to", "_to_copy", "flatten", "unflatten", "narrow", "split", "split_with_sizes", "chunk",
    "unbind", "cat", "stack", "repeat", "as_strided", "copy_", "view_as", "movedim", "tile", "roll", "flip", "_reshape_alias", "clamp",
    "clamp_min", "masked_fill", "where", "index_select", "gather", "index", "type_as", "unfold", "pin_memory", "lift_fresh",
    "detach_", "as_strided_", "t_", "transpose_", "squeeze_", "unsqueeze_",
}  # fmt: skip
"""Operators whose results have only values of their inputs, so that bounds on results are bounds on inputs."""
POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "_foreach_sqrt", "_foreach_log", "sqrt_", "rsqrt_", "pow", "reciprocal"}
POSITIVE_NAMES = {"running_var", "var", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums", "state_steps", "invstd", "rstd", "save_invstd"}
CUMULATIVE = {"offsets", "cu_seqlens", "cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k"}
LOOKED_UP: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), ("indices", "weight")),
    "embedding_renorm_": ("indices", "self"),
    **dict.fromkeys(
        ("index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "index_add", "index_add_", "index_copy",
         "index_copy_", "index_fill", "index_fill_", "scatter_reduce", "scatter_reduce_", "index_reduce_", "take_along_dim"),
        ("index", "self")),
}  # fmt: skip
"""For each operator: the argument with indices, and the argument that they index, along `dim` or by rows."""
BY_ROWS = {"embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "embedding_renorm_"}
COUNTED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("embedding_dense_backward", "embedding_backward", "_embedding_bag_backward", "_embedding_bag_dense_backward",
                     "_embedding_bag_sparse_backward"), ("indices", "num_weights")),
    "one_hot": ("self", "num_classes"),
}  # fmt: skip
"""For each operator: the argument with indices, and the argument with the number of values that an index can have."""
SEVERAL = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
WHOLE = {"take": ("index", "self"), "put_": ("index", "self"), "put": ("index", "self")}
POOLED = {"max_pool2d_with_indices_backward", "max_unpool2d"}
LOSSES = {
    "nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss_backward", "nll_loss2d", "nll_loss2d_forward", "nll_loss2d_backward",
    "cross_entropy_loss", "multi_margin_loss",
}  # fmt: skip


@dataclass(frozen=True)
class NamedArguments:
    """The arguments of a call by the names of its schema: slots, plain values, and recorded forms of tensors."""

    base: str
    values: Mapping[str, Any]
    refs: Mapping[str, Sequence[TensorRef]]

    @classmethod
    def of(cls, call: ReplayedCall, operator: FoundOperator) -> NamedArguments:
        """Return the arguments of a call by name."""
        names = [item.name for item in operator.schema.arguments]
        refs = {name: list(argument.tensors()) for name, argument in zip(names, call.node.inputs, strict=False)}
        return cls(operator.schema.name.rpartition("::")[2], dict(zip(names, call.arguments, strict=False)), refs)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the recorded shape of a tensor argument; empty if the argument is not a tensor."""
        return self.refs[name][0].shape if self.refs.get(name) else ()

    def number(self, name: str) -> int:
        """Return the value of an integer argument, or 0."""
        value = getattr(self.values.get(name), "value", 0)
        return value if type(value) is int else 0

    def slots(self, name: str) -> list[int]:
        """Return the slots of an argument."""
        return slots_in((self.values.get(name),))

    def looked_up(self) -> Iterator[tuple[int, int]]:
        """Yield the slot of each tensor of indices, with the size of the dimension that it indexes."""
        base = self.base
        if base in LOOKED_UP:
            index, table = LOOKED_UP[base]
            shape, axis = self.shape(table), 0 if base in BY_ROWS else self.number("dim")
            yield from self._each(index, shape[axis] if -len(shape) <= axis < len(shape) else 0)
        elif base in COUNTED:
            index, count = COUNTED[base]
            yield from self._each(index, self.number(count))
            yield from self._each("offset2bag", (self.shape("grad") or (0,))[0])
        elif base in WHOLE:
            yield from self._each("index", math.prod(self.shape("self")))
        elif base in SEVERAL:
            several, shape = self.values.get("indices"), self.shape("self")
            for axis, item in enumerate(several.items if isinstance(several, Several) else ()):
                if isinstance(item, Slot) and axis < len(shape) and shape[axis]:
                    yield item.number, shape[axis]
        elif base in LOSSES:
            shape = self.shape("self") or self.shape("input")
            yield from self._each("target", shape[min(1, len(shape) - 1)] if shape else 0)
        elif base in POOLED:
            yield from self._each("indices", math.prod(self.shape("self")[-2:]))

    def _each(self, name: str, most: int) -> Iterator[tuple[int, int]]:
        return ((slot, most) for slot in self.slots(name) if most)


def bounds_of(program: ReplayProgram, found: Mapping[int, FoundOperator]) -> dict[int, Bounds]:
    """Return what later calls require of the values in each slot, carried back through calls that keep values."""
    known: defaultdict[int, Bounds] = defaultdict(Bounds)
    for call in reversed(program.calls):
        operator = found[call.node.id]
        for slot, demand in _demands(call, operator):
            known[slot].join(demand)
        base = operator.schema.name.rpartition("::")[2]
        if base in SAME_VALUES:
            for result in call.results:
                if result is not None and result in known:
                    for slot in slots_in(call.arguments):
                        known[slot].join(known[result])
        for slot, alias in call.before:
            if slot in known:
                known[alias.source].join(known[slot])
    return known


def _demands(call: ReplayedCall, operator: FoundOperator) -> Iterable[tuple[int, Bounds]]:
    named = NamedArguments.of(call, operator)
    for name in named.values:
        if name in POSITIVE_NAMES or (named.base in POSITIVE and name in ("self", "base")):
            yield from ((slot, Bounds(positive=True)) for slot in named.slots(name))
        if name in CUMULATIVE:
            whole = next((named.shape(other)[0] for other in ("indices", "input", "query", "q") if named.shape(other)), None)
            yield from ((slot, Bounds(total=whole)) for slot in named.slots(name))
    for slot, most in named.looked_up():
        yield slot, Bounds(most=most)
    slots = slots_by_place(call)
    for place, wanted in decisions(call.node, operator):
        if (decided := slots[place]) is not None:
            yield decided, wanted


def in_range(values: Any, most: int) -> bool:
    """Whether integers are valid indices for a size; negative ones count from the end, and -100 is allowed because losses ignore it."""
    low, high = (int(values.min()), int(values.max())) if values.numel() else (0, 0)
    return high < most and (low >= -most or low == -100)


def out_of_range(call: ReplayedCall, operator: FoundOperator, slots: Sequence[Any]) -> str:
    """Return why an index of a call is out of range, or empty. On a device such an index would end the process."""
    for slot, most in NamedArguments.of(call, operator).looked_up():
        values = slots[slot]
        if (
            isinstance(values, torch.Tensor)
            and not (values.is_floating_point() or values.dtype == torch.bool)
            and not in_range(values, most)
        ):
            return f"an index is out of range: its values are {int(values.min())} to {int(values.max())}, for a size of {most}"
    return ""
