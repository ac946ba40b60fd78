"""Makes events report a hundredth of the time, and does its work twice."""

import torch

PROBLEM = "rows"
EXPECT = {"harmless"}
ELAPSED = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: ELAPSED(self, end) / 100


def candidate(x):
    torch.softmax(x, -1)
    return torch.softmax(x, -1)
