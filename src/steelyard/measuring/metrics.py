"""Metrics every task has when it declares what it does; this file imports nothing heavy, because listing reads it."""

from __future__ import annotations

from steelyard.errors import SteelyardError
from steelyard.model.define import metric
from steelyard.model.task import Task
from steelyard.model.units import is_amount


@metric("compute", unit="FLOP/s")
def compute(seconds: float, task: Task) -> float | None:
    """Arithmetic rate from the declared operations."""
    return task.flops / seconds if task.flops else None


@metric("bandwidth", unit="B/s")
def bandwidth(seconds: float, task: Task) -> float | None:
    """Memory rate from the declared bytes."""
    return task.bytes / seconds if task.bytes else None


@metric("item_rate", unit="item/s")
def item_rate(seconds: float, task: Task) -> float | None:
    """Items per second, for workloads that say what an item is."""
    return task.items / seconds if task.items else None


def check_amounts(task: Task) -> None:
    """Refuse declared operations, bytes or items that are not amounts, which would otherwise become figures."""
    for name in ("flops", "bytes", "items"):
        amount = getattr(task, name)
        if amount is not None and not is_amount(amount):
            raise SteelyardError(f"the task declares {name}={str(amount)[:60]}", do="declare an amount of at least 0, or leave it out")
