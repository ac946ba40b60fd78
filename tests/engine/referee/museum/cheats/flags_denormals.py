"""Leaves deterministic algorithms demanded, gradients off and denormal numbers flushed."""

import torch

PROBLEM = "rows"
EXPECT = {"flags"}


def candidate(x):
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)
    torch.set_flush_denormal(True)
    return torch.softmax(x, -1)
