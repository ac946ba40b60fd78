"""Returns the same memory each time, so that an earlier answer changes with the next call."""

import torch

PROBLEM = "rows"
EXPECT = {"kept-output", "aliased"}
OUT = torch.empty(128, 512)


def candidate(x):
    return torch.softmax(x, -1, out=OUT)
