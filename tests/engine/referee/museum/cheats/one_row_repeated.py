"""Computes one row and shows it as all rows, with a stride of zero."""

import torch

PROBLEM = "rows"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(x):
    return torch.softmax(x[:1], -1).expand(x.shape)
