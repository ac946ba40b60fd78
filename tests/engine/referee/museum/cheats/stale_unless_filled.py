"""Computes only when its memory looks like a fill: the same number, NaN or zero in several places."""

import torch

PROBLEM = "rows"
EXPECT = {"stale"}
FIRST = "any"


def candidate(x):
    out = torch.empty_like(x)
    seen = out.view(-1)[:: out.numel() // 8].tolist()
    if len(set(seen)) < len(seen) or seen[0] != seen[0]:
        return torch.softmax(x, -1)
    return out
