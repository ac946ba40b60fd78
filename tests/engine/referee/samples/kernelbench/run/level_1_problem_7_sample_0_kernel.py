"""Draws a number before its weights, so that these are equal only when they are carried; and repeats a constant with another value."""

import torch
from torch import nn

SIZE = 2


class ModelNew(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        torch.rand(1)
        self.linear = nn.Linear(size, size)
        self.scale = scale

    def forward(self, x, rows):
        y = torch.nn.functional.linear(x, self.linear.weight, self.linear.bias) * self.scale
        return y, y.index_select(0, rows)
