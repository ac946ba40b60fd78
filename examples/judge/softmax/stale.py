"""A candidate for softmax_reference.py that is no answer: half of its rows are what lay in memory before."""

import torch


def candidate(x):
    out = torch.empty_like(x)
    half = len(x) // 2
    out[:half] = torch.softmax(x[:half], dim=-1)
    return out
