"""Adds up four partial products, in another order than the reference."""

import torch

PROBLEM = "product"


def candidate(a, b):
    parts = [torch.mm(a[:, k : k + 48], b[k : k + 48]) for k in range(0, 192, 48)]
    return (parts[3] + parts[1]) + (parts[2] + parts[0])
