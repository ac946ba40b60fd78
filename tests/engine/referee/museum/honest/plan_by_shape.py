"""Keeps a plan for each shape, and no values."""

import torch

PROBLEM = "ragged"
_cache = {}


def candidate(x):
    if x.shape not in _cache:
        _cache[x.shape] = [slice(start, start + 64) for start in range(0, x.shape[1], 64)]
    parts, carry = [], 0
    for part in _cache[x.shape]:
        parts.append(torch.cumsum(x[:, part], -1) + carry)
        carry = parts[-1][:, -1:]
    return torch.cat(parts, -1)
