"""Returns an empty answer that a thread fills afterwards."""

import threading

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "hidden", "stale"}
FIRST = "any"


def candidate(x):
    out = torch.empty_like(x)
    filling = threading.Timer(0.005, lambda: out.copy_(torch.softmax(x, -1)))
    filling.daemon = True
    filling.start()
    return out
