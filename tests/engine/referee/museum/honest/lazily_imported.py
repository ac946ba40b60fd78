"""Loads a library when it is first called, with a way without it."""

PROBLEM = "scan"


def candidate(x):
    import numpy as np

    try:
        from scipy.special import square
    except ImportError:
        square = np.square
    return np.add.accumulate(square(x), -1)
