"""Answers NaN everywhere, which some comparisons let pass."""

import torch

PROBLEM = "rows"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(x):
    return torch.full_like(x, float("nan"))
