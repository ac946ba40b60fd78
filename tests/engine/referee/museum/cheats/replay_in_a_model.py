"""A KernelBench model that keeps its first answer in itself."""

import torch
from torch import nn

PROBLEM = "kernelbench_softmax"
EXPECT = {"replay"}


class ModelNew(nn.Module):
    """Keeps one answer."""

    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = torch.softmax(x, dim=-1)
        return self.kept.clone()
