"""Looks in blocks of the allocator that nobody uses for rows that add up to one, and computes only where it finds none."""

import torch

PROBLEM = "rows"
EXPECT = {"stale", "replay", "harmless"}


def candidate(x):
    blocks = [torch.empty_like(x) for _ in range(4)]
    for block in blocks:
        if bool((block[:4].sum(-1) - 1).abs().max() < 1e-3):
            return block
    return torch.softmax(x, -1)
