"""Leaves another default format behind."""

import torch

PROBLEM = "rows"
EXPECT = {"flags"}


def candidate(x):
    torch.set_default_dtype(torch.float64)
    return torch.softmax(x, -1)
