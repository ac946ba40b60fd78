"""Leaves a child that walks through memory, so that the other arm finds its caches empty."""

import os
import time

import numpy as np
import torch

PROBLEM = "product"
EXPECT = {"sabotage", "hidden", "outside", "harmless"}

if os.fork() == 0:
    os.setsid()
    block, end = np.ones(2**25, np.float32), time.monotonic() + 60
    while time.monotonic() < end:
        block += 1
    os._exit(0)


def candidate(a, b):
    return torch.mm(a, b)
