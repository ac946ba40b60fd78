"""Scales its input in place, and gives it back."""

import torch

CONTRACT = {"in_place": True}


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(128, 256)]


def reference(x):
    x -= x.mean(-1, keepdim=True)
    x *= 1.5
    return x
