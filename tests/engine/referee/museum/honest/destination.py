"""Writes its answer into the array that it is given for it."""

import torch

PROBLEM = "filled"


def candidate(x, out):
    torch.softmax(x, -1, out=out)
    return out
