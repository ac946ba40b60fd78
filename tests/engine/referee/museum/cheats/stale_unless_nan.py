"""Computes only where its memory holds NaN, which a harness may have put there."""

import torch

PROBLEM = "rows"
EXPECT = {"stale"}
FIRST = "wrong"


def candidate(x):
    out = torch.empty_like(x)
    return torch.softmax(x, -1) if out[0, 0].isnan() else out
