"""Has its weights under other names, so that only the seed makes them equal."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.layer = torch.nn.Linear(size, size)
        self.scale = scale

    def forward(self, x, rows):
        y = self.layer(x) * self.scale
        return y, y[rows]
