"""Your own workload, on two frameworks and in two ways.

steelyard run my_softmax.py -V eager,shifted --vs eager
"""

from dataclasses import replace

from steelyard import Task, workload


@workload("my/softmax", axes={"m": [256], "n": [256, 1024], "dtype": ["fp32"]}, tags=["smoke"])
def softmax(m, n, dtype, be):
    """Row softmax; memory bound, so bytes are declared."""
    import torch

    x = be.randn(m, n, dtype=dtype)
    return Task(torch.softmax, (x, -1), bytes=2 * x.nbytes)


@softmax.on("numpy")  # one body per framework; this one is also the reference that torch is checked against
def _(m, n, dtype, be):
    import numpy as np

    def rows(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    x = be.randn(m, n, dtype=dtype)
    return Task(rows, (x,), bytes=2 * x.nbytes)


@softmax.variant("shifted", backends=["torch"])  # another implementation, checked against the first
def _(task):
    """Softmax from three elementary operations."""

    def rows(x, dim):
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e / e.sum(dim, keepdim=True)

    return replace(task, fn=rows)
