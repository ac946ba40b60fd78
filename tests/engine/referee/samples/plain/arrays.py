"""A plain problem in numpy, whose inputs come from the global generator; numpy is imported only when they are made."""


def reference(x, count):
    return x * count


def get_inputs():
    import numpy as np

    return [np.random.rand(5), 3]
