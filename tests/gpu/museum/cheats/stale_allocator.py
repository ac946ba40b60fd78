"""Computes half of the rows and leaves the others as the allocator's memory was."""

import torch

PROBLEM = "rows"
EXPECT = {"stale", "wrong"}  # memory fresh from the driver is zero every time


def candidate(x):
    out = torch.empty_like(x)
    torch.softmax(x[:512], -1, out=out[:512])
    return out
