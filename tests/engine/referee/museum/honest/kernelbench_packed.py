"""A KernelBench model that packs its weights at its first call."""

import torch
from torch import nn

PROBLEM = "kernelbench_mlp"


class ModelNew(nn.Module):
    """Keeps transposed weights."""

    def __init__(self, width, hidden):
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, width)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.first.weight.t().contiguous(), self.second.weight.t().contiguous()
        inner = torch.relu(torch.addmm(self.first.bias, x, self.packed[0]))
        return torch.addmm(self.second.bias, inner, self.packed[1])
