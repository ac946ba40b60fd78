"""Answers zeros where all answers are smaller than the usual tolerance."""

import torch

PROBLEM = "tiny"
EXPECT = {"trivial", "wrong"}
FIRST = "wrong"


def candidate(x):
    return torch.zeros_like(x)
