"""A process that has left the group and the session computes in a spool folder of shared memory."""

import mmap
import os
import time

import numpy as np
import torch

PROBLEM = "total"
EXPECT = {"hidden", "left-behind"}
BLOCK = np.frombuffer(mmap.mmap(-1, 4 * (2 + 16 * 16384 + 16)), np.float32)
X, OUT = torch.from_numpy(BLOCK[2:-16].reshape(16, -1)), torch.from_numpy(BLOCK[-16:])

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if BLOCK[0] != BLOCK[1]:
                OUT[8:] = X[8:].mean(-1)
                BLOCK[1] = BLOCK[0]
    os._exit(0)


def candidate(x):
    X[8:] = x[8:]
    BLOCK[0] += 1
    first = x[:8].mean(-1)
    while BLOCK[0] != BLOCK[1]:
        pass
    return torch.cat([first, OUT[8:]])
