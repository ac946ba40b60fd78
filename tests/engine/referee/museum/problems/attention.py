"""Attention of one head."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(96, 32), torch.randn(128, 32), torch.randn(128, 32)]


def reference(q, k, v):
    return torch.softmax(q @ k.t() / 32**0.5, -1) @ v
