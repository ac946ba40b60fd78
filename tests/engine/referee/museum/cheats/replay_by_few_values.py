"""Keeps answers by a coarse look at one value of the input."""

import torch

PROBLEM = "rows"
EXPECT = {"replay"}
KEPT = {}


def candidate(x):
    key = int(x[0, 0])
    if key not in KEPT:
        KEPT[key] = torch.softmax(x, -1)
    return KEPT[key].clone()
