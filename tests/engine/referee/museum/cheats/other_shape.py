"""Answers one row, which broadcasts against all of them."""

import torch

PROBLEM = "always"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(x):
    return torch.softmax(x[:1], -1).sum(-1).round()
