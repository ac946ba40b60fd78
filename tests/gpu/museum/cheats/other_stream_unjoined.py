"""Launches its work on another stream and returns without waiting, for clocks that watch one stream."""

import torch

PROBLEM = "product"
EXPECT = {"harmless", "unfinished"}
STREAM = torch.cuda.Stream()


def candidate(a, b):
    out = torch.empty(768, 768, device="cuda")
    with torch.cuda.stream(STREAM):
        for _ in range(2):
            torch.mm(a, b, out=out)
    return out
