"""A plain problem for `steelyard judge`: what is to be computed, and the inputs of a call for a seed."""

import torch

CONTRACT = {"in_place": False}


def reference(x):
    """Softmax of each row, in steps."""
    shifted = x - x.max(dim=-1, keepdim=True).values
    powers = shifted.exp()
    return powers / powers.sum(dim=-1, keepdim=True)


def inputs(seed):
    """The inputs of one call."""
    chance = torch.Generator().manual_seed(seed)
    return (torch.randn(256, 1024, generator=chance),)
