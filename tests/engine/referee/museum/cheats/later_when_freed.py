"""Computes the answer when its input is freed, which a harness may do after its clock has stopped."""

import weakref

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale"}
FIRST = "wrong"


def candidate(x):
    out, given = torch.empty_like(x), x.detach()
    weakref.finalize(x, lambda: out.copy_(torch.softmax(given, -1)))
    return out
