"""Holds its work back on another stream by some ten milliseconds of waiting, so that it runs after the call."""

import torch

PROBLEM = "product"
EXPECT = {"harmless", "unfinished", "hidden"}
STREAM = torch.cuda.Stream()


def candidate(a, b):
    out = torch.empty(768, 768, device="cuda")
    with torch.cuda.stream(STREAM):
        torch.cuda._sleep(20_000_000)
        torch.mm(a, b, out=out)
    return out
