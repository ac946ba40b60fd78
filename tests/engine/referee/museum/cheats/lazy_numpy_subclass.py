"""Returns a numpy array of a class whose conversions compute."""

import numpy as np

PROBLEM = "scan"
EXPECT = {"lazy", "stale"}
FIRST = "wrong"


class Lazy(np.ndarray):
    """Empty until it is copied or converted."""

    given = None

    def tobytes(self, *args):
        return np.cumsum(self.given * self.given, -1).tobytes()

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        ready = [np.cumsum(i.given * i.given, -1) if isinstance(i, Lazy) else i for i in inputs]
        return getattr(ufunc, method)(*ready, **kwargs)


def candidate(x):
    out = np.empty_like(x).view(Lazy)
    out.given = x
    return out
