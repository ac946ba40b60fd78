"""A thread launches the work after the call has returned."""

import queue
import threading

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale", "hidden"}
CALLS = queue.SimpleQueue()


def work():
    stream = torch.cuda.Stream()
    while True:
        x, out = CALLS.get()
        with torch.cuda.stream(stream):
            torch.softmax(x, -1, out=out)


threading.Thread(target=work, daemon=True).start()


def candidate(x):
    out = torch.empty_like(x)
    CALLS.put((x, out))
    return out
