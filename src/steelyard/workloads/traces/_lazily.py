"""Makes given tensors when they are first needed and frees them after their last use, if all of them do not fit at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from steelyard.workloads.traces import _play
from steelyard.workloads.traces._data import DTYPES, LEAST_SCALE, TensorSource, contiguous, groups_of
from steelyard.workloads.traces._deciding import Bounds
from steelyard.workloads.traces._program import Given, ReplayProgram, reach


def with_makers(steps: _play.ReplaySteps, program: ReplayProgram, source: TensorSource, bounds: Mapping[int, Bounds]) -> _play.ReplaySteps:
    """Return the steps with one more before the first use of each group of given tensors, which makes the tensors.

    Making them is then part of the measured time. Integers are copied from tensors that are kept, because they must be in range;
    floating-point numbers all have one small value.
    """
    first, last = _uses(program)
    makers: dict[int, list[_play.ReplayStep]] = {}
    over: dict[int, list[int]] = {}
    generator = torch.Generator().manual_seed(source.seed)
    for group in groups_of(program):
        slots = [item.slot for item in group]
        begin, end = min(first[slot] for slot in slots), max(last[slot] for slot in slots)
        make = _maker(group, source, bounds, generator)
        spread = tuple((item.slot, place) for place, item in enumerate(group))
        makers.setdefault(begin, []).append(_play.ReplayStep(make, _nothing, _play.MANY, spread, ()))
        over.setdefault(end, []).extend(slots)
    made: list[_play.ReplayStep] = []
    calls: list[int] = []
    for number, (step, call) in enumerate(zip(steps.steps, steps.calls, strict=True)):
        if number == 0 or steps.calls[number - 1] != call:
            made += makers.get(call, [])
            calls += [call] * len(makers.get(call, []))
        ends = number + 1 == len(steps.calls) or steps.calls[number + 1] != call
        made.append(dataclasses.replace(step, over=(*step.over, *over.get(call, ()))) if ends else step)
        calls.append(call)
    return _play.ReplaySteps(tuple(made), steps.template, (), tuple(calls))


def _uses(program: ReplayProgram) -> tuple[dict[int, int], dict[int, int]]:
    last = program.last_uses()
    first: dict[int, int] = {}
    for number, call in enumerate(program.calls):
        for slot in program.reads(call):
            first.setdefault(slot, number)
    return first, last


def _nothing(slots: list[Any]) -> Sequence[Any]:
    return ()


def _maker(
    group: Sequence[Given], source: TensorSource, bounds: Mapping[int, Bounds], generator: torch.Generator
) -> Callable[[], list[Any]]:
    whole = max(group, key=lambda item: reach(item.ref))
    dtype, place = DTYPES[whole.ref.dtype], source.device_of(whole.ref.device)
    count = -(-reach(whole.ref) // dtype.itemsize)
    forms = [(DTYPES[item.ref.dtype], item.ref.offset, item.ref.shape, item.ref.strides or contiguous(item.ref.shape)) for item in group]
    if not (dtype.is_floating_point or dtype.is_complex):
        kept = source.group(group, bounds, generator)
        base = torch.empty(0, dtype=dtype, device=place).set_(kept[whole.slot].untyped_storage())
        return lambda: _views(base.clone(), forms)
    return lambda: _views(torch.full((count,), LEAST_SCALE, dtype=dtype, device=place), forms)


def _views(base: Any, forms: Sequence[tuple[torch.dtype, int, Sequence[int], Sequence[int]]]) -> list[Any]:
    storage = base.untyped_storage()
    return [
        torch.empty(0, dtype=dtype, device=base.device).set_(storage, offset, shape, strides) for dtype, offset, shape, strides in forms
    ]
