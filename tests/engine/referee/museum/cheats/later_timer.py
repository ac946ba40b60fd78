"""Returns an empty answer that a timer fills a millisecond later."""

import threading

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "hidden", "stale"}
FIRST = "wrong"


def candidate(x):
    out = torch.empty_like(x)
    timer = threading.Timer(0.001, lambda: out.copy_(torch.softmax(x, -1)))
    timer.daemon = True
    timer.start()
    return out
