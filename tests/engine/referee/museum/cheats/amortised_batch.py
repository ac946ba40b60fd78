"""Hands out empty answers and computes eight of them in one batch at every eighth call."""

import torch

PROBLEM = "chain"
EXPECT = {"amortised", "unfinished", "stale"}
FIRST = "wrong"
WAITING = []


def candidate(x):
    out = torch.empty_like(x)
    WAITING.append((x, out))
    if len(WAITING) == 8:
        y = torch.stack([given for given, _ in WAITING])
        for _ in range(6):
            y = torch.tanh(y * 1.1 + 0.1) - y.mean(-1, keepdim=True)
        for (_, answer), row in zip(WAITING, y, strict=True):
            answer.copy_(row)
        WAITING.clear()
    return out
