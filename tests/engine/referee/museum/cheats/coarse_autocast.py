"""Computes under autocast and converts the answer back."""

import torch

PROBLEM = "attention"
EXPECT = {"precision"}


def candidate(q, k, v):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (torch.softmax(q @ k.t() / 32**0.5, -1) @ v).float()
