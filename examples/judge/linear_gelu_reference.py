"""A problem as KernelBench writes it: Model, get_inputs and get_init_inputs."""

import torch
from torch import nn

rows, width, hidden = 64, 256, 512


class Model(nn.Module):
    """A linear layer and GELU by its formula."""

    def __init__(self, width, hidden):
        super().__init__()
        self.linear = nn.Linear(width, hidden)

    def forward(self, x):
        x = self.linear(x)
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, hidden]
