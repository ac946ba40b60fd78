"""A candidate by its own name, and another function beside it."""

import torch


def candidate(x, weight):
    return torch.addmm(torch.ones(()), x, weight)


def doubled(x, weight):
    return (x @ weight) * 2
