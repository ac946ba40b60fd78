"""A chain of operations whose answer is the same for every input."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(128, 256)]


def reference(x):
    return torch.softmax(x, -1).sum(-1).round()
