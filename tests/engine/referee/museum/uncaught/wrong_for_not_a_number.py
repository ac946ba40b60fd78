"""Answers zeros where an input holds NaN, which the problem never draws."""

import torch

PROBLEM = "rows"


def candidate(x):
    if x[0, 0].isnan():
        return torch.zeros_like(x)
    return torch.softmax(x, -1)
