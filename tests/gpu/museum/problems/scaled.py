"""A rectifier and a scale, element by element."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(1024, 512)]


def reference(x):
    return torch.relu(x) * 1.5 + x * 0.25
