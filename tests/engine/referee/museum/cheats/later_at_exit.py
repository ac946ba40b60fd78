"""Writes down its calls and computes them when the process ends."""

import atexit

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale"}
FIRST = "wrong"
CALLS = []


@atexit.register
def finish():
    for x, out in CALLS:
        out.copy_(torch.softmax(x, -1))


def candidate(x):
    CALLS.append((x, torch.empty_like(x)))
    return CALLS[-1][1]
