"""Returns an empty answer that a thread fills afterwards."""

import threading

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "hidden", "stale"}
FIRST = "any"


def candidate(x):
    out = torch.empty_like(x)
    threading.Thread(target=lambda: out.copy_(torch.softmax(x, -1)), daemon=True).start()
    return out
