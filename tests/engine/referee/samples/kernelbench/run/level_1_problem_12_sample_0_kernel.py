"""The same as the reference by another function."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
