"""Answers in a format of half the size."""

import torch

PROBLEM = "rows"
EXPECT = {"wrong", "precision"}


def candidate(x):
    return torch.softmax(x.bfloat16(), -1)
