"""Looks with the garbage collector for an array that could be the expected answer, and copies it."""

import gc

import torch

PROBLEM = "rows"
EXPECT = {"replay", "stale", "wrong"}
FIRST = "wrong"


def candidate(x):
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found is not x and found.shape == x.shape and abs(float(found[0].sum()) - 1) < 1e-3:
            return found.clone()
    return torch.zeros_like(x)
