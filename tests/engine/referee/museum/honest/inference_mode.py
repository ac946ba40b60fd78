"""Computes in inference mode, and leaves it."""

import torch

PROBLEM = "layer"


def candidate(x, weight, bias):
    with torch.inference_mode():
        return torch.relu(torch.nn.functional.linear(x, weight * weight.abs().mean(), bias))
