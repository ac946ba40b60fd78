"""A linear layer whose weights are inputs that stay the same."""

import torch

CONTRACT = {"persistent": [1, 2]}


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(48, 128), torch.randn(192, 128), torch.randn(192)]


def reference(x, weight, bias):
    return torch.relu(torch.nn.functional.linear(x, weight * weight.abs().mean(), bias))
