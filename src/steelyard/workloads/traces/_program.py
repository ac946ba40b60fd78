"""A replay as plain data: calls in order, the slots of their tensors, and the tensors that must exist beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.traces.nodes import SIZES, TensorRef, TraceArgument, TraceNode
from steelyard.workloads.traces._choice import Key, key_of


@dataclass(frozen=True)
class Slot:
    """The slot that holds a tensor when a call is made."""

    number: int


@dataclass(frozen=True)
class Several:
    """A list argument, of tensors or of plain values."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Alias:
    """Another view of a tensor from the replay. PyTorch made the view without an operator, so the replay has to make it."""

    source: int
    ref: TensorRef


@dataclass(frozen=True)
class ReplayedCall:
    """One operator of the trace: its arguments, the slots of its results (None: nothing reads one), and the slots to free after it."""

    node: TraceNode
    arguments: tuple[Any, ...]
    results: tuple[int | None, ...]
    before: tuple[tuple[int, Alias], ...] = ()
    over: tuple[int, ...] = ()


@dataclass(frozen=True)
class Given:
    """A tensor that no replayed call makes: its slot, its form, the group that shares its memory, and where it is first read."""

    slot: int
    ref: TensorRef
    group: int
    node: int
    place: int


@dataclass(frozen=True)
class ReplayProgram:
    """Everything that a replay does; `skipped` has the reason for each node that is not called."""

    calls: tuple[ReplayedCall, ...]
    given: tuple[Given, ...]
    slots: int
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def given_bytes(self) -> int:
        """Bytes of the given tensors; shared memory counts once."""
        sizes: dict[int, int] = {}
        for item in self.given:
            sizes[item.group] = max(sizes.get(item.group, 0), reach(item.ref))
        return sum(sizes.values())

    def peak_bytes(self, *, lazy: bool) -> int:
        """Return the peak of memory: given tensors are held all the time, or with `lazy` from their first use to their last."""
        live, most, held = 0 if lazy else self.given_bytes, 0, dict[int, int]()
        groups = {item.slot: item for item in self.given}
        ends: dict[int, list[int]] = {}
        for slot, number in self.last_uses().items() if lazy else ():
            if slot in groups:
                ends.setdefault(number, []).append(slot)
        for number, call in enumerate(self.calls):
            for slot in slots_in(call.arguments) if lazy else ():
                if slot in groups and slot not in held:
                    held[slot] = reach(groups[slot].ref)
                    live += held[slot]
            for result, ref in made(call):
                if result is not None and result not in held and not _shares(call, ref):
                    held[result] = reach(ref)
                    live += held[result]
            most = max(most, live)
            live -= sum(held.pop(slot, 0) for slot in (*call.over, *ends.get(number, ())))
        return most

    def last_uses(self) -> dict[int, int]:
        """Return the last call that reads each slot."""
        return {slot: number for number, call in enumerate(self.calls) for slot in self.reads(call)}

    @staticmethod
    def reads(call: ReplayedCall) -> list[int]:
        """Return the slots that a call reads."""
        return _read(call)

    @staticmethod
    def slots_of(arguments: Any) -> list[int]:
        """Return the slots in one argument or several."""
        return slots_in(arguments)


def reach(ref: TensorRef) -> int:
    """Return the bytes of a tensor's storage up to the tensor's last element."""
    return (ref.offset + ref.extent) * (SIZES.get(ref.dtype) or ref.itemsize or 1)


def made(call: ReplayedCall) -> list[tuple[int | None, TensorRef]]:
    """Return the results of a call, each with its slot."""
    return list(zip(call.results, outputs_of(call.node), strict=True))


def outputs_of(node: TraceNode) -> list[TensorRef]:
    """Return the tensors that a node returned, in order."""
    return [ref for argument in node.outputs for ref in argument.tensors()]


def _shares(call: ReplayedCall, ref: TensorRef) -> bool:
    return any(ref.storage == other.storage for argument in call.node.inputs for other in argument.tensors())


def slots_in(value: Any) -> list[int]:
    """Return all slots in arguments."""
    if isinstance(value, Slot):
        return [value.number]
    if isinstance(value, (tuple, list)):
        return [number for item in value for number in slots_in(item)]
    return slots_in(value.items) if isinstance(value, Several) else []


def slots_by_place(call: ReplayedCall) -> list[int | None]:
    """Return the slot of each tensor that a call takes, in order; None if another value replaces the tensor."""
    return [slot for argument, value in zip(call.node.inputs, call.arguments, strict=True) for slot in _leaves(argument, value)]


def _leaves(argument: TraceArgument, value: Any) -> Iterator[int | None]:
    if isinstance(argument.value, TensorRef):
        yield value.number if isinstance(value, Slot) else None
    elif isinstance(argument.value, tuple):
        for item, inner in zip(argument.value, value.items, strict=True):
            yield from _leaves(item, inner)


def _read(call: ReplayedCall) -> list[int]:
    return [*slots_in(call.arguments), *(alias.source for _, alias in call.before)]


@dataclass(frozen=True)
class Amendments:
    """Exceptions to passing on the results of calls: tensors that are made beforehand instead, and arguments that are numbers."""

    replaced: Collection[tuple[int, int]] = ()
    """Results by node and place that are not used: later calls get a given tensor of the recorded form."""
    own: Collection[tuple[int, int]] = ()
    """Arguments by node and place among its tensors that get their own given tensor, whichever call made the recorded one."""
    numbers: Mapping[tuple[int, int], TraceArgument] = field(default_factory=dict)
    """Arguments by node and place that are numbers, although PyTorch recorded them as tensors."""


def program_of(nodes: Sequence[TraceNode], skipped: Mapping[int, str], amendments: Amendments | None = None) -> ReplayProgram:
    """Return a program in which the results of calls are arguments of later calls.

    `skipped` are nodes that are not called, with the reason; given tensors replace their results.
    """
    made = _Linking(skipped, amendments or Amendments())
    for node in nodes:
        if node.id not in skipped:
            made.add(node)
    return ReplayProgram(_with_ends(made.calls, {item.slot for item in made.given}), tuple(made.given), made.slots, dict(skipped))


class _Linking:
    """Builds a program, node by node."""

    def __init__(self, skipped: Mapping[int, str], amendments: Amendments) -> None:
        self.skipped, self.amendments = skipped, amendments
        self.calls: list[ReplayedCall] = []
        self.given: list[Given] = []
        self.latest: dict[Key, int] = {}
        self.owner: dict[int, tuple[int, TensorRef, int | None]] = {}
        """For each storage: the last slot with a tensor of it, that tensor's form, and its group if it is given."""
        self.slots = self.groups = 0
        self.before: list[tuple[int, Alias]] = []
        self.seen = 0
        """Number of tensors among the node's inputs so far."""

    def add(self, node: TraceNode) -> None:
        self.before, self.seen = [], 0
        arguments = tuple(self._taken(node, place, argument) for place, argument in enumerate(node.inputs))
        results: list[int | None] = []
        for place, ref in enumerate(outputs_of(node)):
            key = key_of(ref)
            if (node.id, place) in self.amendments.replaced:
                results.append(None)
                self.latest.pop(key, None)
                if not _takes(node, ref):
                    self.owner.pop(ref.storage, None)
                continue
            slot = self._new()
            self.latest[key] = slot
            group = self.owner[ref.storage][2] if ref.storage in self.owner and _takes(node, ref) else None
            self.owner[ref.storage] = (slot, ref, group)
            results.append(slot)
        self.calls.append(ReplayedCall(node, arguments, tuple(results), tuple(self.before)))

    def _taken(self, node: TraceNode, place: int, argument: TraceArgument) -> Any:
        number = self.amendments.numbers.get((node.id, place))
        if number is None:
            return self._argument(node, argument)
        self.seen += 1
        return number

    def _argument(self, node: TraceNode, argument: TraceArgument) -> Any:
        if isinstance(argument.value, TensorRef):
            self.seen += 1
            return Slot(self._slot(node, self.seen - 1, argument.value)) if argument.value.defined else None
        if isinstance(argument.value, tuple):
            return Several(tuple(self._argument(node, item) for item in argument.value))
        return argument

    def _slot(self, node: TraceNode, place: int, ref: TensorRef) -> int:
        key = key_of(ref)
        if (node.id, place) in self.amendments.own:
            slot, self.groups = self._new(), self.groups + 1
            self.given.append(Given(slot, ref, self.groups - 1, node.id, place))
            return slot
        if key in self.latest:
            return self.latest[key]
        owner = self.owner.get(ref.storage)
        if owner and ref.numel and owner[1].device == ref.device and reach(ref) <= reach(owner[1]):
            slot, base, group = owner
            if group is None and base.dtype == ref.dtype:
                return self._aliased(key, slot, base, ref)
        group = owner[2] if owner and owner[2] is not None and ref.numel and owner[1].device == ref.device else None
        if group is None:
            group, self.groups = self.groups, self.groups + 1
        slot = self._new()
        self.given.append(Given(slot, ref, group, node.id, place))
        self.latest[key] = slot
        if owner is None or owner[2] is None or reach(ref) > reach(owner[1]):
            self.owner[ref.storage] = (slot, ref, group)
        return slot

    def _aliased(self, key: Key, source: int, base: TensorRef, ref: TensorRef) -> int:
        if (base.shape, base.strides, base.offset) == (ref.shape, ref.strides, ref.offset):
            self.latest[key] = source
            return source
        slot = self._new()
        self.before.append((slot, Alias(source, ref)))
        self.latest[key] = slot
        return slot

    def _new(self) -> int:
        self.slots += 1
        return self.slots - 1


def _takes(node: TraceNode, ref: TensorRef) -> bool:
    return any(other.storage == ref.storage for argument in node.inputs for other in argument.tensors())


def _with_ends(calls: Sequence[ReplayedCall], given: Collection[int]) -> tuple[ReplayedCall, ...]:
    """Return the calls with the slots that nothing reads afterwards, so that memory is freed where the recording freed it."""
    last: dict[int, int] = {}
    for number, call in enumerate(calls):
        for slot in (*_read(call), *(slot for slot in call.results if slot is not None), *(slot for slot, _ in call.before)):
            last[slot] = number
    ends: dict[int, list[int]] = {}
    for slot, number in last.items():
        if slot not in given:
            ends.setdefault(number, []).append(slot)
    unread = {slot for call in calls for slot in call.results if slot is not None} - {slot for call in calls for slot in _read(call)}
    return tuple(
        dataclasses.replace(
            call,
            results=tuple(None if slot in unread else slot for slot in call.results),
            over=tuple(sorted(slot for slot in ends.get(number, ()) if slot not in unread)),
        )
        for number, call in enumerate(calls)
    )
