"""Takes memory at every call and gives none back."""

import torch

PROBLEM = "rows"
EXPECT = {"oom", "harmless"}
TAKEN = []


def candidate(x):
    if len(TAKEN) < 64:
        TAKEN.append(torch.ones(2**20))
    return torch.softmax(x, -1)
