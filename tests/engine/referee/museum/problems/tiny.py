"""Softmax over so many numbers that every answer is smaller than usual absolute tolerances."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.rand(2, 32768)]


def reference(x):
    return torch.softmax(x, -1)
