"""The mean of many positive numbers: a small sample of them has nearly the same one."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.rand(16, 16384)]


def reference(x):
    return x.mean(-1)
