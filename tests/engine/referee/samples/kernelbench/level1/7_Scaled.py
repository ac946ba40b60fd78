"""A reference with weights, an integer input, and a tuple as its answer."""

import torch
from torch import nn

SIZE = 6


class Model(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = scale

    def forward(self, x, rows):
        y = self.linear(x) * self.scale
        return y, y[rows]


def get_inputs():
    return [torch.rand(4, SIZE), torch.randint(0, 4, (3,))]


def get_init_inputs():
    return [SIZE, 0.5]
