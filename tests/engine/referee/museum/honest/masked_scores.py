"""Has minus infinity and NaN where the reference has them."""

import torch

PROBLEM = "masked"


def candidate(x, mask):
    out = torch.empty(len(x) + 2, x.shape[1])
    torch.where(mask, torch.tensor(float("-inf")), x, out=out[:-2])
    torch.log(x[:2], out=out[-2:])
    return out
