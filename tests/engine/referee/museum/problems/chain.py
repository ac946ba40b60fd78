"""Many small operations on few numbers: what a call costs is the overhead of its parts, so a batch of calls is far cheaper."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(4, 32)]


def reference(x):
    for _ in range(6):
        x = torch.tanh(x * 1.1 + 0.1) - x.mean(-1, keepdim=True)
    return x
