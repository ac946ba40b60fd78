"""Changes one number of its input, as a mark that it has seen it."""

import torch

PROBLEM = "rows"
EXPECT = {"changed-inputs"}


def candidate(x):
    out = torch.softmax(x, -1)
    x[-1, -1] += 1
    return out
