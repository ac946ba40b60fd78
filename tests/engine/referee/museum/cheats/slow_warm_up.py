"""Is slow in its first calls, so that a harness which learns from them takes few samples."""

import time

import torch

PROBLEM = "rows"
EXPECT = {"harmless"}
CALLS = []


def candidate(x):
    CALLS.append(1)
    if len(CALLS) <= 3:
        time.sleep(0.1)
    return torch.softmax(x, -1)
