"""Softmax of rows, written into an array that the caller gives."""

import torch

CONTRACT = {"fills_outputs": True}


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(128, 256)]


def reference(x):
    return torch.softmax(x, -1)
