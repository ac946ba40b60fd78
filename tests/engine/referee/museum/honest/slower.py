"""Right and slower than the reference."""

import torch

PROBLEM = "rows"


def candidate(x):
    e = (x.double() - x.double().amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)).float() + torch.zeros_like(x)
