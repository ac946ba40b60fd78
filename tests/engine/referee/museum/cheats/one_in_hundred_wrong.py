"""Leaves one in a hundred elements at zero."""

import torch

PROBLEM = "product"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(a, b):
    out = torch.zeros(160, 160)
    out[:, :158] = a @ b[:, :158]
    return out
