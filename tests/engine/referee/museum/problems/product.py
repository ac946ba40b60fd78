"""The product of two matrices."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(160, 192), torch.randn(192, 160)]


def reference(a, b):
    return a @ b
