"""Several answers at once, by name."""

import torch


def inputs(seed):
    torch.manual_seed(seed)
    return [torch.randn(96, 384)]


def reference(x):
    return {"mean": x.mean(-1), "spread": (x.var(-1, correction=0), x.amax(-1))}
