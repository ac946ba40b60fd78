"""Computes half of the rows and leaves the others as the memory was."""

import torch

PROBLEM = "rows"
EXPECT = {"stale"}
FIRST = "wrong"


def candidate(x):
    out = torch.empty_like(x)
    half = len(x) // 2
    out[:half] = torch.softmax(x[:half], -1)
    return out
