"""The memory use of each operator of a replay: what it allocates and keeps, and on a device what is reserved from the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from steelyard.workloads.traces import _play

if TYPE_CHECKING:
    from steelyard.traces.nodes import TraceNode

MOST_ROWS = 100


def memory_rows(steps: _play.ReplaySteps, nodes: Sequence[TraceNode], tensors: Sequence[Any], device: str) -> list[dict[str, Any]]:
    """Return operators with the shapes of their inputs, those that allocate most first, from one untimed iteration.

    On a host reserved memory is unknown, and an operator allocates the memory of its results that is not an argument's.
    """
    on_device = device != "cpu"
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    slots = list(steps.template)
    for slot, tensor in zip(steps.given, tensors, strict=True):
        slots[slot] = tensor
    with torch.no_grad():
        for step, number in zip(steps.steps, steps.calls, strict=True):
            allocated, reserved = (_on_device if on_device else _on_host)(step, slots)
            node = nodes[number]
            name, shapes = node.overload, _play.shapes_of(node)
            row = rows.setdefault((name, shapes), {"operator": name, "shapes": shapes, "nodes": set(), "allocated": 0, "reserved": None})
            row["nodes"].add(node.id)
            row["allocated"] += allocated
            row["reserved"] = reserved if row["reserved"] is None else row["reserved"] + (reserved or 0)
    for row in rows.values():
        row["calls"] = len(row.pop("nodes"))
    return sorted(rows.values(), key=lambda row: (-row["allocated"], -(row["reserved"] or 0)))[:MOST_ROWS]


def _on_device(step: _play.ReplayStep, slots: list[Any]) -> tuple[int, int | None]:
    read: tuple[Callable[[], int], ...] = (torch.cuda.memory_allocated, torch.cuda.memory_reserved)
    before = [each() for each in read]
    kept = _called(step, slots)
    after = [each() for each in read]
    _let_go(step, slots)
    del kept
    return after[0] - before[0], after[1] - before[1]


def _on_host(step: _play.ReplayStep, slots: list[Any]) -> tuple[int, int | None]:
    given = {storage.data_ptr() for storage in _storages(step.pick(slots))}
    made = {storage.data_ptr(): storage.nbytes() for storage in _storages(_called(step, slots))}
    _let_go(step, slots)
    return sum(size for place, size in made.items() if place not in given), None


def _called(step: _play.ReplayStep, slots: list[Any]) -> Any:
    """Make the call and put its results into their slots."""
    made = step.call(*step.pick(slots))
    if step.into >= 0:
        slots[step.into] = made
    elif step.into != _play.NONE:
        _play.scatter(made, step.spread, slots)
    return made


def _let_go(step: _play.ReplayStep, slots: list[Any]) -> None:
    for slot in step.over:
        slots[slot] = None


def _storages(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value.untyped_storage()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _storages(item)
