"""Gives several answers by name, from one pass."""

import torch

PROBLEM = "moments"


def candidate(x):
    spread, mean = torch.var_mean(x, -1, correction=0)
    return {"mean": mean, "spread": (spread, x.max(-1).values)}
