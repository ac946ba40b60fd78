"""Has a thread that waits for lines to log and gets one now and then."""

import queue
import sys
import threading

import torch

PROBLEM = "rows"
LINES = queue.SimpleQueue()


def write():
    while True:
        print(LINES.get(), file=sys.stderr)


threading.Thread(target=write, daemon=True).start()
CALLS = []


def candidate(x):
    CALLS.append(1)
    if len(CALLS) % 256 == 1:
        LINES.put(f"call {len(CALLS)}")
    return torch.softmax(x, -1)
