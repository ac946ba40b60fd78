"""Launches once while a graph is captured and skips the other captured calls."""

import torch

PROBLEM = "rows"
EXPECT = {"harmless", "stale", "replay"}
CAPTURED = []


def candidate(x):
    if not torch.cuda.is_current_stream_capturing():
        return torch.softmax(x, -1)
    if not CAPTURED:
        CAPTURED.append(torch.softmax(x, -1))
    return CAPTURED[0]
