"""Returns two buffers in turn, which hides their reuse from a look at the next answer."""

import itertools

import torch

PROBLEM = "product"
EXPECT = {"kept-output", "aliased"}
OUT = itertools.cycle([torch.empty(160, 160), torch.empty(160, 160)])


def candidate(a, b):
    return torch.mm(a, b, out=next(OUT))
