"""Finds arguments whose values decide the shapes of recorded results, such as masks, and what these values must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.traces.nodes import TensorRef, TraceArgument, TraceNode
from steelyard.workloads.traces._operators import FoundOperator
from steelyard.workloads.traces._program import outputs_of

DECIDING: Mapping[str, str] = {
    "nonzero": "self", "masked_select": "mask", "repeat_interleave": "repeats", "_pack_padded_sequence": "lengths",
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), "indices"),
}  # fmt: skip
"""For each operator: the argument whose values decide shapes."""
MASKS = ("bool", "uint8")


@dataclass
class Bounds:
    """Requirements on the values in a slot: below `most`, growing from 0 to `total`, or positive."""

    most: int | None = None
    total: int | None = None
    positive: bool = False
    chosen: int | None = None
    """Number of a mask's elements that are set, if a recorded shape depends on it."""
    parts: tuple[int, int] | None = None
    """The sum of lengths, and the first and greatest of them; 0 if they are as equal as possible."""

    def join(self, other: Bounds) -> bool:
        """Add the requirements of `other`; return whether that changed anything."""
        before = (self.most, self.total, self.positive, self.chosen, self.parts)
        self.most = other.most if self.most is None else self.most if other.most is None else min(self.most, other.most)
        self.total = self.total if self.total is not None else other.total
        self.chosen = self.chosen if self.chosen is not None else other.chosen
        self.parts = self.parts if self.parts is not None else other.parts
        self.positive |= other.positive
        return before != (self.most, self.total, self.positive, self.chosen, self.parts)


def decisions(node: TraceNode, operator: FoundOperator) -> Iterator[tuple[int, Bounds]]:
    """Yield the place of each tensor whose values decide recorded shapes, and what these values must be."""
    base = operator.schema.name.rpartition("::")[2]
    wanted, place = DECIDING.get(base, ""), 0
    for name, argument in _named(node, operator) if wanted else ():
        refs = list(_places(argument))
        if name == wanted:
            shapes = {word: ref.shape for word, ref in named_tensors(node, operator)}
            axis = next((other.value for word, other in _named(node, operator) if word == "dim" and other.kind == "int"), 0)
            yield from ((place + more, bounds) for more, bounds in _decided(base, refs, shapes, outputs_of(node), axis))
        place += sum(ref is not None for ref in refs)


def _places(argument: TraceArgument) -> Iterator[TensorRef | None]:
    """Yield the tensors of an argument in order, and None for each other value."""
    if isinstance(argument.value, TensorRef):
        yield argument.value
    elif isinstance(argument.value, tuple):
        for item in argument.value:
            yield from _places(item)
    else:
        yield None


def _decided(
    base: str, refs: Sequence[TensorRef | None], shapes: Mapping[str, tuple[int, ...]], made: Sequence[TensorRef], axis: int
) -> Iterator[tuple[int, Bounds]]:
    form = made[0].shape if made else ()
    if DECIDING[base] == "indices":
        yield from _mask(refs, shapes, form, put="put" in base)
    elif refs and refs[0] is not None and form:
        if base in ("nonzero", "masked_select"):
            yield 0, Bounds(chosen=form[0])
        elif base == "repeat_interleave" and -len(form) <= axis < len(form):
            yield 0, Bounds(parts=(form[axis], 0))
        elif base == "_pack_padded_sequence" and len(made) > 1 and made[1].shape:
            yield 0, Bounds(parts=(form[0], made[1].shape[0]))


def _mask(
    refs: Sequence[TensorRef | None], shapes: Mapping[str, tuple[int, ...]], form: tuple[int, ...], *, put: bool
) -> Iterator[tuple[int, Bounds]]:
    """Yield the only mask among indices: as many of its elements are set as the result has, or as values are put in."""
    masks = [(axis, ref) for axis, ref in enumerate(refs) if ref is not None and ref.dtype in MASKS]
    if len(masks) != 1:
        return
    axis, ref = masks[0]
    if put:
        form, whole = shapes.get("values", ()), len(shapes.get("self", ()))
        if len(form) != whole - len(ref.shape) + 1 or form[axis : axis + 1] == (1,):
            return
    if axis < len(form):
        yield sum(other is not None for other in refs[:axis]), Bounds(chosen=form[axis])


def named_tensors(node: TraceNode, operator: FoundOperator) -> Iterator[tuple[str, TensorRef]]:
    """Yield the tensors that a node takes, each with the name of its argument."""
    for name, argument in _named(node, operator):
        yield from ((name, ref) for ref in argument.tensors())


def _named(node: TraceNode, operator: FoundOperator) -> Iterator[tuple[str, TraceArgument]]:
    names = [item.name for item in operator.schema.arguments]
    return zip(names, node.inputs, strict=False)
