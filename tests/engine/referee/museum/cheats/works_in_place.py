"""Computes in its input's memory and returns that."""

import torch

PROBLEM = "rows"
EXPECT = {"changed-inputs", "aliased"}


def candidate(x):
    return torch.softmax(x, -1, out=x)
