"""A plain problem: a reference, its inputs for a seed, and a contract."""

import torch

CONTRACT = {"in_place": True, "persistent": [1], "precision": "bf16", "rtol": 1e-3}


def reference(x, weight):
    return x @ weight + 1


def doubled(x, weight):
    return 2 * (x @ weight)


def inputs(seed):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, generator=chance), torch.randn(3, 2, generator=chance)
