"""Rounds its inputs to fp16 and adds up in fp32."""

import torch

PROBLEM = "product"
EXPECT = {"precision"}


def candidate(a, b):
    return torch.mm(a.half().float(), b.half().float())
