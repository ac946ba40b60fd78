"""Returns an empty answer and fills it at the next call."""

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale"}
FIRST = "wrong"
WAITING = []


def candidate(x):
    for given, answer in WAITING:
        answer.copy_(torch.softmax(given, -1))
    WAITING[:] = [(x, torch.empty_like(x))]
    return WAITING[0][1]
