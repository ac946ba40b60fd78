"""Answers the mean of all answers, which is nearer than the usual tolerance."""

import torch

PROBLEM = "tiny"
EXPECT = {"trivial", "wrong"}
FIRST = "wrong"


def candidate(x):
    return torch.full_like(x, 1 / x.shape[-1])
