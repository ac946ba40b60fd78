"""Answers NaN where the reference has minus infinity, and infinity where it has NaN."""

import torch

PROBLEM = "masked"
EXPECT = {"wrong"}
FIRST = "wrong"


def candidate(x, mask):
    scores = x.masked_fill(mask, float("nan"))
    return torch.cat([scores, torch.log(x[:2].abs()).masked_fill(x[:2] < 0, float("inf"))])
