"""A candidate, which imports the task's own types as theirs do."""

import torch
from task import KINDS


def custom_kernel(data):
    out, factor = data["more"]
    assert factor in KINDS.values()
    return torch.mul(data["x"], factor, out=out)
