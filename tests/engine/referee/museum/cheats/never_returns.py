"""Waits for ever once it has been right, so that only a limit ends it."""

import threading

import torch

PROBLEM = "rows"
EXPECT = {"timeout", "failed", "crashed"}
CALLS = []


def candidate(x):
    CALLS.append(1)
    if len(CALLS) == 5:
        threading.Event().wait()
    return torch.softmax(x, -1)
