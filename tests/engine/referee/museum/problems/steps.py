"""A chain of operations of a quarter of a millisecond."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(64, 256)]


def reference(x):
    for _ in range(6):
        x = torch.tanh(x * 1.1 + 0.1) - x.mean(-1, keepdim=True)
    return x
