"""Keeps answers by the address of the input, which the caching allocator hands out again."""

import torch

PROBLEM = "rows"
EXPECT = {"replay", "harmless"}
KEPT = {}


def candidate(x):
    if x.data_ptr() not in KEPT:
        KEPT[x.data_ptr()] = torch.softmax(x, -1)
    return KEPT[x.data_ptr()].clone()
