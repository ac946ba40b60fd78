"""Softmax of rows, valid until the next call."""

import torch

CONTRACT = {"reuses_output": True}


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(1024, 512)]


def reference(x):
    return torch.softmax(x, -1)
