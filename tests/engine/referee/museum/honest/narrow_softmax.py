"""Leaves out the shift by the maximum: right for the problem's inputs, and told that it overflows for larger ones."""

PROBLEM = "rows"
TOLD = {"narrow"}


def candidate(x):
    e = x.exp()
    return e.div_(e.sum(-1, keepdim=True))
