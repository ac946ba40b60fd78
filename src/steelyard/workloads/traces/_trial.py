"""The first run of a replay, call by call: calls that fail are skipped with the reason, results are compared with the recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from steelyard.errors import Unsupported, out_of_memory, told
from steelyard.model.units import plain as quantity
from steelyard.traces.nodes import TensorRef, TraceArgument, TraceNode
from steelyard.workloads.traces import _play
from steelyard.workloads.traces._bounds import bounds_of, out_of_range
from steelyard.workloads.traces._data import DTYPES, TensorSource
from steelyard.workloads.traces._operators import FoundOperator, KnownOperators, NotReplayed, fitted
from steelyard.workloads.traces._outside import outside_of
from steelyard.workloads.traces._program import Amendments, ReplayedCall, ReplayProgram, outputs_of, program_of, reach

MOST_ROUNDS = 8
NUMBER = 0.5
LONGEST = 160
ASKED = "asked for"
"""How the reason begins if the user named the operator to be skipped."""


@dataclass(frozen=True)
class Fitted:
    """A program that runs here, its operators, and the results that differ from the recording."""

    program: ReplayProgram
    found: Mapping[int, FoundOperator]
    strange: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Results by node and place whose form differs from the recorded one."""


def refused(nodes: Sequence[TraceNode], known: KnownOperators, skip: Mapping[str, str]) -> tuple[dict[int, FoundOperator], dict[int, str]]:
    """Return the operators of nodes, and the reasons for nodes that are not called; `skip` are users' reasons by operator."""
    found: dict[int, FoundOperator] = {}
    reasons: dict[int, str] = {}
    for node in nodes:
        asked = next((skip[name] for name in (node.overload, node.name) if name in skip), None)
        if asked is not None:
            reasons[node.id] = f"{ASKED}: {asked}" if asked else ASKED
            continue
        try:
            found[node.id] = known.find(node)
            fitted(node, found[node.id])
        except NotReplayed as error:
            reasons[node.id] = str(error)
            found.pop(node.id, None)
    return found, reasons


def try_out(nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator], reasons: Mapping[int, str], source: TensorSource) -> Fitted:
    """Return a program whose calls all work here; calls that fail are left out, and given tensors replace their results."""
    reasons, strange, found = dict(reasons), dict[tuple[int, int], str](), dict(found)
    numbers: dict[tuple[int, int], TraceArgument] = {}
    for last in range(MOST_ROUNDS):
        program = _program(nodes, found, reasons, strange, numbers)
        tensors = _given(program, found, source, reasons)
        if tensors is None:
            continue
        seen = _each(program, found, tensors, source)
        if not seen.failed and not (seen.strange.keys() - strange.keys()) and not seen.otherwise:
            break
        reasons |= seen.failed
        strange |= seen.strange
        for node, (operator_here, own) in seen.otherwise.items():
            found[node] = operator_here
            numbers |= own
        if last == MOST_ROUNDS - 2:
            strange = {key: why for key, why in strange.items() if key[0] not in reasons}
    else:
        program = _program(nodes, found, reasons, strange, numbers)
    kept = {node: item for node, item in found.items() if node not in reasons}
    return Fitted(dataclasses.replace(program, skipped=dict(reasons)), kept, strange)


def _program(
    nodes: Sequence[TraceNode], found: Mapping[int, FoundOperator], reasons: Mapping[int, str], strange: Collection[tuple[int, int]],
    numbers: Mapping[tuple[int, int], TraceArgument],
) -> ReplayProgram:  # fmt: skip
    outside = outside_of(nodes, {node: item for node, item in found.items() if node not in reasons})
    return program_of(nodes, reasons, Amendments({*strange, *outside.made}, outside.read, numbers))


def _given(program: ReplayProgram, found: Mapping[int, FoundOperator], source: TensorSource, reasons: dict[int, str]) -> list[Any] | None:
    """Return the given tensors; None if a format cannot be made here, which adds a reason for each call that reads it."""
    if program.given_bytes > source.room():
        raise Unsupported(
            f"the tensors that the replay starts with take {quantity(program.given_bytes, 'B')}",
            why=f"only {quantity(source.room(), 'B')} are free", do="replay a subgraph, or use a machine with more memory",
        )  # fmt: skip
    try:
        return source.tensors(program, bounds_of(program, found))
    except ValueError as error:
        for call in program.calls:
            if any(str(ref.dtype) in str(error) for argument in call.node.inputs for ref in argument.tensors()):
                reasons[call.node.id] = str(error)
        return None
    except (RuntimeError, TypeError, OverflowError) as error:
        if out_of_memory(error):
            raise
        raise Unsupported("a tensor of the trace cannot be made", why=told(error, LONGEST), do="steelyard trace validate FILE") from error


@dataclass
class _Seen:
    """The outcome of a round of calls: failed calls, results in another form, and calls to make in another way."""

    failed: dict[int, str] = field(default_factory=dict)
    strange: dict[tuple[int, int], str] = field(default_factory=dict)
    otherwise: dict[int, tuple[FoundOperator, dict[tuple[int, int], TraceArgument]]] = field(default_factory=dict)


def _each(program: ReplayProgram, found: Mapping[int, FoundOperator], tensors: Sequence[Any], source: TensorSource) -> _Seen:
    """Make each call once; results of a failed call are made up, so that later calls are tried too."""
    linker = _play.Linker(program, source.device_of)
    steps = linker.steps(found)
    slots = list(steps.template)
    for slot, tensor in zip(steps.given, tensors, strict=True):
        slots[slot] = tensor
    seen, waiting = _Seen(), iter(steps.steps)
    with torch.no_grad():
        for call in program.calls:
            for slot, _ in call.before:
                alias = next(waiting)
                slots[slot] = _attempt(alias, slots, {}, 0)
            step, made = next(waiting), None
            if why := out_of_range(call, found[call.node.id], slots):
                seen.failed[call.node.id] = why
            else:
                made = _attempt(step, slots, seen.failed, call.node.id)
                if call.node.id not in seen.failed and _unlike(call, made):
                    made = _otherwise(call, found[call.node.id], linker, slots, seen, made)
            _put(call, made, slots, source, seen.strange, bad=call.node.id in seen.failed)
            for slot in call.over:
                slots[slot] = None
    return seen


def _unlike(call: ReplayedCall, made: Any) -> bool:
    """Whether the form of a result differs from the recorded one."""
    places = zip(outputs_of(call.node), _play.result_paths(call.node), strict=True)
    return any(_play.differs(_play.value_at(made, path), ref) for ref, path in places)


def _otherwise(call: ReplayedCall, operator_here: FoundOperator, linker: _play.Linker, slots: list[Any], seen: _Seen, made: Any) -> Any:
    """Make a call in other ways in which it may have been recorded, and keep one that gives the recorded forms.

    PyTorch records the number in `x * 0.5` as a tensor, which gives another format than the number if no operand has dimensions.
    And some operators return less if gradients are disabled.
    """
    numbers = {place: number for place, argument in enumerate(call.node.inputs) if (number := _number(call.node, place, argument))}
    changed = dataclasses.replace(call, arguments=tuple(numbers.get(place, argument) for place, argument in enumerate(call.arguments)))
    ways = [(changed, operator_here, numbers)] if numbers else []
    for other, found, own in [*ways, (call, dataclasses.replace(operator_here, with_grad=True), {})]:
        linked = linker.link(other, found)
        slots += linker.plain[len(slots) - linker.program.slots :]
        failed: dict[int, str] = {}
        again = _attempt(_play.ReplayStep(linked.call, linked.pick, _play.NONE, (), ()), slots, failed, 0)
        if not failed and not _unlike(call, again):
            seen.otherwise[call.node.id] = found, {(call.node.id, place): number for place, number in own.items()}
            return again
    return made


def _number(node: TraceNode, place: int, argument: TraceArgument) -> TraceArgument | None:
    """Return the number that a tensor without dimensions may stand for, or None; an integer is from its recorded range."""
    ref = argument.value
    if not isinstance(ref, TensorRef) or ref.shape or ref.device not in ("", "cpu") or ref.dtype not in ("float64", "int64"):
        return None
    if ref.dtype == "float64":
        return TraceArgument("float", NUMBER)
    return TraceArgument("int", node.tensor_ranges.get(place, (1, 1))[0])


def _put(call: ReplayedCall, made: Any, slots: list[Any], source: TensorSource, strange: dict[tuple[int, int], str], *, bad: bool) -> None:
    for place, (slot, ref, path) in enumerate(zip(call.results, outputs_of(call.node), _play.result_paths(call.node), strict=True)):
        value = _play.value_at(made, path)
        why = "" if bad else _play.differs(value, ref)
        if why:
            strange[call.node.id, place] = why
        if slot is None:
            continue
        slots[slot] = value
        if bad or why:
            slots[slot] = _stand_in(ref, source)


def _stand_in(ref: TensorRef, source: TensorSource) -> Any:
    """Return a tensor of the recorded form to replace a missing result; None if it cannot be made."""
    dtype = DTYPES.get(ref.dtype)
    if dtype is None or reach(ref) > source.room():
        return None
    try:
        return torch.zeros(ref.shape, dtype=dtype, device=source.device_of(ref.device))
    except (RuntimeError, TypeError, OverflowError):
        return None


def _attempt(step: _play.ReplayStep, slots: list[Any], failed: dict[int, str], node: int) -> Any:
    """Make a call; an error becomes the reason to skip it, unless memory ran out, which is not the operator's fault."""
    try:
        return step.call(*step.pick(slots))
    except Exception as error:
        if out_of_memory(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        failed[node] = f"it failed: {lines[0][:LONGEST]}"
        return None
