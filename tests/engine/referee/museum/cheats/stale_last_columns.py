"""Computes all but the last hundredth of every row."""

import torch

PROBLEM = "product"
EXPECT = {"stale"}
FIRST = "wrong"


def candidate(a, b):
    out = torch.empty(len(a), b.shape[1])
    out[:, :-2] = a @ b[:, :-2]
    return out
