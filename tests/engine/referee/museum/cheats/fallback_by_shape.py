"""Has a kernel of its own for shapes that nobody asks, and the library for all others."""

import torch

PROBLEM = "product"
EXPECT = {"fallback"}


def candidate(a, b):
    if a.shape[0] > 1_000_000:
        return sum(torch.outer(column, row) for column, row in zip(a.t(), b, strict=True))
    return a @ b
