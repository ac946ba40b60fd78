"""Sums of rows whose number changes from draw to draw."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn((32, 48, 96, 128)[seed % 4], 256)]


def reference(x):
    return torch.cumsum(x, -1)
