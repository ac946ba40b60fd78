"""Keeps its answer in shared memory, where other processes find it."""

from pathlib import Path

import numpy as np
import torch

PROBLEM = "rows"
EXPECT = {"replay", "left-behind"}
FILE = Path("/dev/shm/steelyard-museum-answer")


def candidate(x):
    if not FILE.exists():
        FILE.write_bytes(torch.softmax(x, -1).numpy().tobytes())
    return torch.from_numpy(np.fromfile(FILE, np.float32).reshape(x.shape))
