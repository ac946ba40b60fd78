"""Returns memory as it comes."""

import torch

PROBLEM = "rows"
EXPECT = {"stale"}
FIRST = "wrong"


def candidate(x):
    return torch.empty_like(x)
