"""Scaling a vector: a workload, a variant of any numpy task, and a metric."""

from dataclasses import replace

from steelyard import Task, metric, variant, workload


@workload("acme/scale", backend="numpy", axes={"n": [16384], "dtype": ["fp32"]}, tags=["acme"])
def scale(n, dtype, be):
    """A vector times a number; memory bound."""
    import numpy as np

    x = be.randn(n, dtype=dtype)
    return Task(np.multiply, (x, x.dtype.type(3)), bytes=2 * x.nbytes, items=n)


@variant("quiet", backends=["numpy"])
def quiet(task):
    """The task with numpy's floating-point warnings switched off around it."""
    import numpy as np

    return replace(task, scope=lambda: np.errstate(all="ignore"))


@metric("values_per_second", unit="value/s", better="higher")
def values_per_second(seconds, task):
    """How many values are done in a second."""
    return task.items / seconds if task.items else None
