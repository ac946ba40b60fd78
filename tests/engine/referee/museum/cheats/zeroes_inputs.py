"""Overwrites its input with zeros, so that a reference called after it sees those."""

PROBLEM = "product"
EXPECT = {"changed-inputs"}


def candidate(a, b):
    out = a @ b
    a.zero_()
    return out
