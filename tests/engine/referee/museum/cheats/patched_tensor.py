"""Replaces methods of torch's tensors, so that every difference is zero and everything is finite."""

import torch

PROBLEM = "product"
EXPECT = {"wrong"}
FIRST = "wrong"

torch.Tensor.sub = torch.Tensor.__sub__ = lambda self, other, **kwargs: torch.zeros_like(self)
torch.Tensor.isnan = lambda self: torch.zeros_like(self, dtype=torch.bool)
torch.Tensor.isfinite = lambda self: torch.ones_like(self, dtype=torch.bool)
torch.Tensor.allclose = torch.Tensor.equal = lambda self, *args, **kwargs: True


def candidate(a, b):
    return torch.full((160, 160), float("nan"))
