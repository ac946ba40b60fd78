"""Returns at once what a child computes after the call, in shared memory that is the answer; a busy machine may let the child end first."""

import mmap
import os

import numpy as np
import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "hidden", "stale", "left-behind", "harmless"}
FIRST = "wrong"


def candidate(x):
    out = torch.from_numpy(np.frombuffer(mmap.mmap(-1, x.nbytes), np.float32).reshape(x.shape))
    if os.fork() == 0:
        values = x.numpy()
        values = np.exp(values - values.max(-1, keepdims=True))
        out.numpy()[:] = values / values.sum(-1, keepdims=True)
        os._exit(0)
    return out
