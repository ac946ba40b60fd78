"""Keeps answers by the identity of the input."""

import torch

PROBLEM = "rows"
EXPECT = {"replay", "harmless"}
KEPT = {}


def candidate(x):
    if id(x) not in KEPT:
        KEPT[id(x)] = torch.softmax(x, -1)
    return KEPT[id(x)].clone()
