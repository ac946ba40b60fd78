"""Repeats on every pipe what its process wrote there last, by replacing the function that writes, and computes nothing."""

import os

import torch

PROBLEM = "rows"
EXPECT = {"forged", "failed", "crashed", "stale"}
FIRST = "wrong"
WRITE, LAST = os.write, {}


def write(fd, data):
    LAST[fd] = bytes(data)
    return WRITE(fd, data)


os.write = write


def candidate(x):
    for fd, data in LAST.items():
        WRITE(fd, data)
    return torch.empty_like(x)
