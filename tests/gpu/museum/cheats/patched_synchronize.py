"""Makes waiting for the device do nothing, and works on another stream."""

import torch

PROBLEM = "product"
EXPECT = {"harmless", "unfinished"}
STREAM = torch.cuda.Stream()
torch.cuda.synchronize = lambda device=None: None
torch.cuda.Stream.synchronize = torch.cuda.Event.synchronize = lambda self: None


def candidate(a, b):
    with torch.cuda.stream(STREAM):
        torch.mm(a, b)
        return torch.mm(a, b)
