"""Keeps its declared weights in eight bits."""

import torch

PROBLEM = "layer"
EXPECT = {"precision", "wrong"}
KEPT = {}


def candidate(x, weight, bias):
    if id(weight) not in KEPT:
        full = weight * weight.abs().mean()
        scale = full.abs().amax() / 127
        KEPT[id(weight)] = (full / scale).round() * scale
    return torch.relu(torch.nn.functional.linear(x, KEPT[id(weight)], bias))
