"""Takes long for its first call, as one that is compiled then."""

import time

import torch

PROBLEM = "rows"
COMPILED = []


def compiled():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    return torch.softmax


def candidate(x):
    if not COMPILED:
        COMPILED.append(compiled())
    return COMPILED[0](x, -1)
