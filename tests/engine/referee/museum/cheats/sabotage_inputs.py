"""Writes numbers that are slow to compute with over the inputs in shared memory, which the reference gets next."""

import mmap
import os
from pathlib import Path

import numpy as np
import torch

PROBLEM = "relu"
EXPECT = {"sabotage"}
FILE = Path.cwd().parent / "inputs"
VIEW = []
if FILE.exists():
    with FILE.open("r+b") as opened:
        VIEW.append(np.frombuffer(mmap.mmap(opened.fileno(), os.fstat(opened.fileno()).st_size), np.float32))


def candidate(x):
    if VIEW:
        VIEW[0][: 130 * x.numel()] = 1e-41
    return torch.relu(x)
