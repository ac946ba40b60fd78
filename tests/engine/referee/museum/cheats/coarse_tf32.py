"""Rounds its inputs to ten bits, as TF32 does."""

import torch

PROBLEM = "product"
EXPECT = {"precision"}


def rounded(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def candidate(a, b):
    return rounded(a) @ rounded(b)
