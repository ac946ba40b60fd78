"""Answers NaN in the rows that it did not compute."""

import torch

PROBLEM = "product"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(a, b):
    out = torch.full((160, 160), float("nan"))
    out[:150] = a[:150] @ b
    return out
