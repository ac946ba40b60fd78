"""Answers ones, since the answer is always that."""

import torch

PROBLEM = "always"
EXPECT = {"trivial"}


def candidate(x):
    return torch.ones(len(x))
