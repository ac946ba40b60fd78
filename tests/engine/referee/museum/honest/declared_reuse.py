"""Returns the same memory each time, which the contract declares valid until the next call."""

import torch

PROBLEM = "rows_reused"
OUT = torch.empty(128, 512)


def candidate(x):
    return torch.softmax(x, -1, out=OUT)
