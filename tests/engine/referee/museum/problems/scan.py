"""Running sums of a numpy array."""

import numpy as np


def inputs(seed):
    return [np.random.default_rng(seed).standard_normal((64, 512), dtype=np.float32)]


def reference(x):
    return np.cumsum(x * x, -1)
