"""Leaves every other row of a numpy array as the memory was."""

import numpy as np

PROBLEM = "scan"
EXPECT = {"stale"}
FIRST = "wrong"


def candidate(x):
    out = np.empty_like(x)
    out[::2] = np.cumsum(x[::2] * x[::2], -1)
    return out
