"""Makes the reference's own functions slow, for a harness that calls both in one process."""

import torch

PROBLEM = "rows"
EXPECT = {"harmless", "flags"}
SOFTMAX = torch.softmax


def slow(x, dim, *args, **kwargs):
    return [SOFTMAX(x, dim, *args, **kwargs) for _ in range(20)][-1]


torch.softmax = torch.Tensor.softmax = torch.nn.functional.softmax = slow


def candidate(x):
    return SOFTMAX(x, -1)
