"""Many small operations made fewer."""

import torch

PROBLEM = "chain"
SHIFT = torch.tensor(0.1)


def candidate(x):
    for _ in range(6):
        mean = x.mean(-1, keepdim=True)
        x = torch.add(SHIFT, x, alpha=1.1).tanh_().sub_(mean)
    return x
