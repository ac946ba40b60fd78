"""Replays a graph whose output is the same memory each time, without a contract that says so."""

import torch

PROBLEM = "rows"
EXPECT = {"kept-output", "aliased"}
OUT = torch.empty(1024, 512, device="cuda")


def candidate(x):
    return torch.softmax(x, -1, out=OUT)
