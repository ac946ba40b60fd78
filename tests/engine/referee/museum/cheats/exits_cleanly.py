"""Ends its process with success at the third call."""

import sys

import torch

PROBLEM = "rows"
EXPECT = {"failed", "crashed"}
CALLS = []


def candidate(x):
    CALLS.append(1)
    if len(CALLS) == 3:
        sys.exit(0)
    return torch.softmax(x, -1)
