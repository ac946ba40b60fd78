"""Keeps scratch memory from call to call and gives a new answer each time."""

import torch

PROBLEM = "attention"
SCORES = torch.empty(96, 128)


def candidate(q, k, v):
    torch.mm(q, k.t(), out=SCORES)
    SCORES.mul_(32**-0.5)
    return torch.softmax(SCORES, -1) @ v
