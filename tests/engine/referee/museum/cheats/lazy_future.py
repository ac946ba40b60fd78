"""Returns a future in place of the answer."""

from concurrent.futures import ThreadPoolExecutor

import torch

PROBLEM = "rows"
EXPECT = {"lazy", "wrong", "failed"}
FIRST = "raises"
POOL = ThreadPoolExecutor(1)


def candidate(x):
    return POOL.submit(torch.softmax, x, -1)
