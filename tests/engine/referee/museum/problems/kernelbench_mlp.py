"""Two linear layers in KernelBench's layout."""

import torch
from torch import nn

N = 48


class Model(nn.Module):
    """The reference."""

    def __init__(self, width, hidden):
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, width)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(N, 96)]


def get_init_inputs():
    return [96, 160]
