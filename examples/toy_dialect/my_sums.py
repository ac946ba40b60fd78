"""A user's own file for the toy: one operation, and another way to do it."""

from dataclasses import replace

from steelyard import Task, workload


@workload("toy/sum", axes={"n": [1000]}, backend="numpy")
def total(n, be):
    """The sum of an array."""
    return Task(lambda x: x.sum(), (be.randn(n, dtype="fp64"),))


@total.variant("blocked")
def blocked(task):
    """The same in blocks of a hundred."""
    return replace(task, fn=lambda x: sum(x[at : at + 100].sum() for at in range(0, len(x), 100)))
