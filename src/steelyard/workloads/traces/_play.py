"""Runs the calls of a program: a loop that only picks arguments, makes the call, and frees tensors that are no longer used."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from steelyard import clocks
from steelyard.traces.nodes import TensorRef, TraceArgument, TraceNode
from steelyard.workloads.traces._data import contiguous
from steelyard.workloads.traces._operators import FoundOperator, fitted, in_order
from steelyard.workloads.traces._program import Alias, ReplayedCall, ReplayProgram, Several, Slot

Pick = Callable[[list[Any]], Sequence[Any]]
DeviceOf = Callable[[str], torch.device]


@dataclass(frozen=True)
class ReplayStep:
    """One call: the operator, how its arguments are picked, the slot of its single result or those of several, and the slots to free."""

    call: Callable[..., Any]
    pick: Pick
    into: int
    spread: tuple[tuple[int, ...], ...]
    over: tuple[int, ...]


ONLY, NONE, MANY = 0, -1, -2
LONGEST_SHAPES = 120


@dataclass(frozen=True)
class ReplaySteps:
    """All calls of a program, and the contents of the slots before the first: plain values, and room for the given tensors.

    `calls` has for each step the call of the program that it belongs to.
    """

    steps: tuple[ReplayStep, ...]
    template: tuple[Any, ...]
    given: tuple[int, ...]
    calls: tuple[int, ...]

    def run(self) -> Callable[..., None]:
        """Return a function of the given tensors that makes all calls."""
        steps = tuple((step.call, step.pick, step.into, step.spread, step.over) for step in self.steps)
        template, given = self.template, self.given

        def replay(*tensors: Any) -> None:
            slots = list(template)
            for slot, tensor in zip(given, tensors, strict=True):
                slots[slot] = tensor
            for call, pick, into, spread, over in steps:
                if into >= 0:
                    slots[into] = call(*pick(slots))
                elif into == NONE:
                    call(*pick(slots))
                else:
                    scatter(call(*pick(slots)), spread, slots)
                for slot in over:
                    slots[slot] = None

        return replay

    def noted(self, note: Callable[[], None]) -> Callable[..., None]:
        """Return the same function with a note before the first call and after each.

        The loop is written out again, because one more function call would cost as much as an operator.
        """
        steps = tuple((step.call, step.pick, step.into, step.spread, step.over) for step in self.steps)
        template, given = self.template, self.given

        def replay(*tensors: Any) -> None:
            slots = list(template)
            for slot, tensor in zip(given, tensors, strict=True):
                slots[slot] = tensor
            note()
            for call, pick, into, spread, over in steps:
                if into >= 0:
                    slots[into] = call(*pick(slots))
                elif into == NONE:
                    call(*pick(slots))
                else:
                    scatter(call(*pick(slots)), spread, slots)
                for slot in over:
                    slots[slot] = None
                note()

        return replay

    def timed(self) -> Callable[..., list[int]]:
        """Return the same function, which returns the time in nanoseconds before the first step and after each."""
        now, seen = clocks.perf_counter_ns, list[int]()
        replay = self.noted(lambda: seen.append(now()))

        def timed(*tensors: Any) -> list[int]:
            seen.clear()
            replay(*tensors)
            return seen.copy()

        return timed


def scatter(made: Any, spread: Sequence[tuple[int, ...]], slots: list[Any]) -> None:
    """Put several results into their slots: `spread` has the slot and the place of each; a place inside a list is two numbers."""
    for slot, *path in spread:
        value = made
        for place in path:
            value = value[place]
        slots[slot] = value


@dataclass(frozen=True)
class Linked:
    """A call that can be made: its operator, and how its arguments are picked."""

    call: Callable[..., Any]
    pick: Pick


class Linker:
    """Turns recorded calls into ones that can be made here; plain values get their own slots after those of tensors."""

    def __init__(self, program: ReplayProgram, device_of: DeviceOf) -> None:
        self.program, self.device_of = program, device_of
        self.plain: list[Any] = []

    def steps(self, found: Mapping[int, FoundOperator]) -> ReplaySteps:
        """Return the steps of the whole program."""
        steps: list[ReplayStep] = []
        calls: list[int] = []
        for number, call in enumerate(self.program.calls):
            steps += [self._alias(slot, alias) for slot, alias in call.before]
            calls += [number] * (len(call.before) + 1)
            linked = self.link(call, found[call.node.id])
            into, spread = placed(call)
            steps.append(ReplayStep(linked.call, linked.pick, into, spread, call.over))
        template = [None] * self.program.slots + self.plain
        return ReplaySteps(tuple(steps), tuple(template), tuple(item.slot for item in self.program.given), tuple(calls))

    def link(self, call: ReplayedCall, operator_here: FoundOperator) -> Linked:
        """Return one call with its operator."""
        by_place, by_name = in_order(self._needed(call, operator_here))
        places = [self._index(call.arguments[place]) for place in by_place]
        named = {name: self._index(call.arguments[place]) for name, place in by_name.items()}
        constant = {name: self._constant(index) for name, index in named.items() if isinstance(index, int) and index >= self.program.slots}
        moving = {name: index for name, index in named.items() if name not in constant}
        used = {name: value for name, value in constant.items() if value is not None}
        plain = with_grad(operator_here.call) if operator_here.with_grad else operator_here.call
        target = functools.partial(plain, **used) if used else plain
        if moving:
            return Linked(functools.partial(_by_name, target, tuple(moving)), picker([*places, *moving.values()]))
        return Linked(target, picker(places))

    def _needed(self, call: ReplayedCall, operator_here: FoundOperator) -> list[tuple[str, int, bool]]:
        """Return the arguments without defaults where possible: passing a default by name costs a third of a small operator."""
        taken = fitted(call.node, operator_here)
        usual = {item.name: item.default_value for item in operator_here.schema.arguments if item.has_default_value()}

        def idle(part: tuple[str, int, bool]) -> bool:
            name, place, _ = part
            if name not in usual or isinstance(call.arguments[place], Slot):
                return False
            value = self._value(call.arguments[place])
            return type(value) is type(usual[name]) and value == usual[name]

        named = [part for part in taken if part[2] and not idle(part)]
        plain = [part for part in taken if not part[2]]
        while plain and idle(plain[-1]):
            plain.pop()
        return [*plain, *named]

    def _alias(self, slot: int, alias: Alias) -> ReplayStep:
        ref = alias.ref
        arguments = [alias.source, *map(self._kept, (ref.shape, ref.strides or contiguous(ref.shape), ref.offset))]
        return ReplayStep(torch.as_strided, picker(arguments), slot, (), ())

    def _index(self, argument: Any) -> Any:
        """Return the slot of an argument, or several slots for a list."""
        if isinstance(argument, Slot):
            return argument.number
        if isinstance(argument, Several) and _has_slots(argument):
            return tuple(self._index(item) for item in argument.items)
        return self._kept(self._value(argument))

    def _kept(self, value: Any) -> int:
        self.plain.append(value)
        return self.program.slots + len(self.plain) - 1

    def _constant(self, index: int) -> Any:
        return self.plain[index - self.program.slots]

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, Several):
            return [self._value(item) for item in argument.items]
        if not isinstance(argument, TraceArgument):
            return None
        if argument.kind == "device" and isinstance(argument.value, str):
            return self.device_of(argument.value)
        return argument.value


def _has_slots(argument: Several) -> bool:
    return any(isinstance(item, Slot) or (isinstance(item, Several) and _has_slots(item)) for item in argument.items)


def picker(indices: Sequence[Any]) -> Pick:
    """Return a function that gets arguments from the slots; lists of tensors become tuples, which operators also take."""
    if not indices:
        return lambda slots: ()
    if all(isinstance(index, int) for index in indices):
        if len(indices) == 1:
            only = indices[0]
            return lambda slots: (slots[only],)
        return operator.itemgetter(*indices)
    parts = [operator.itemgetter(index) if isinstance(index, int) else picker(index) for index in indices]
    return lambda slots: [part(slots) for part in parts]


def with_grad(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call with gradients enabled; a replay has them disabled, as none of its tensors needs one."""
    switch = torch._C._set_grad_enabled

    def called(*args: Any, **kwargs: Any) -> Any:
        switch(True)
        try:
            return call(*args, **kwargs)
        finally:
            switch(False)

    return called


def _by_name(call: Callable[..., Any], names: tuple[str, ...], *args: Any) -> Any:
    """Make a call with its last tensors passed by name, such as the buffer for a result."""
    count = len(args) - len(names)
    return call(*args[:count], **dict(zip(names, args[count:], strict=True)))


def placed(call: ReplayedCall) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return where the results of a call go: the slot of a single one, or a code and the places of several."""
    paths = result_paths(call.node)
    wanted = [(slot, *path) for slot, path in zip(call.results, paths, strict=True) if slot is not None]
    if not wanted:
        return NONE, ()
    if len(paths) == 1 and len(wanted[0]) == 1:
        return wanted[0][0], ()
    return MANY, tuple(wanted)


def result_paths(node: TraceNode) -> list[tuple[int, ...]]:
    """Return the place of each recorded tensor in what a call returns: empty for a single tensor, else its place in a tuple or list."""
    several = len(node.outputs) > 1
    return [path for place, item in enumerate(node.outputs) for path in _paths(item, (place,) if several else ())]


def _paths(argument: TraceArgument, outer: tuple[int, ...]) -> list[tuple[int, ...]]:
    if isinstance(argument.value, TensorRef):
        return [outer] if argument.value.defined else []
    items = argument.value if isinstance(argument.value, tuple) else ()
    return [path for inner, item in enumerate(items) for path in _paths(item, (*outer, inner))]


def differs(made: Any, ref: TensorRef) -> str:
    """Return how a result differs from its recorded form; empty if it does not."""
    if not isinstance(made, torch.Tensor):
        return f"{type(made).__name__} instead of a tensor"
    if tuple(made.shape) != ref.shape:
        return f"shape {list(made.shape)} instead of {list(ref.shape)}"
    dtype = str(made.dtype).removeprefix("torch.")
    return f"{dtype} instead of {ref.dtype}" if dtype != ref.dtype else ""


def value_at(made: Any, path: Sequence[int]) -> Any:
    """Return the result at a place; None if there is none."""
    for place in path:
        if not isinstance(made, (tuple, list)) or place >= len(made):
            return None
        made = made[place]
    return made


def shapes_of(node: TraceNode) -> str:
    """Return the shapes of the tensors that a node takes, as text for tables."""
    return " ".join("x".join(map(str, ref.shape)) or "1" for argument in node.inputs for ref in argument.tensors())[:LONGEST_SHAPES]
