"""Calls the garbage collector now and then, and looks at nothing in it."""

import gc

import torch

PROBLEM = "rows"
CALLS = []


def candidate(x):
    CALLS.append(1)
    if len(CALLS) % 100 == 1:
        gc.collect(0)
    return torch.softmax(x, -1)
