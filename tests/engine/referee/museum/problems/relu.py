"""A rectifier asked with positive numbers only, as many benchmarks do."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.rand(128, 512)]


def reference(x):
    return torch.relu(x)
