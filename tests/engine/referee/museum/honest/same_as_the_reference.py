"""The reference's own code, which is told and not refused."""

import torch

PROBLEM = "product"
TOLD = {"fallback"}


def candidate(a, b):
    return torch.matmul(a, b)
