"""Returns an object that becomes an array when it is asked to."""

import numpy as np

PROBLEM = "scan"
EXPECT = {"lazy", "wrong", "failed"}
FIRST = "raises"


class Promise:
    """Has a shape and a dtype, and computes in `__array__`."""

    def __init__(self, given):
        self.given, self.shape, self.dtype = given, given.shape, given.dtype

    def __array__(self, dtype=None, copy=None):
        return np.cumsum(self.given * self.given, -1)


def candidate(x):
    return Promise(x)
