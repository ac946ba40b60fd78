"""A candidate for ../softmax_reference.py that a model has not finished: it calls a function that is not there."""


def candidate(x):
    return x.sofmax(dim=-1)
