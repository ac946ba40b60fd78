"""Attention in blocks of keys with a running maximum and sum."""

import torch

PROBLEM = "attention"


def candidate(q, k, v):
    top = torch.full((len(q), 1), float("-inf"))
    total, out = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[1])
    for block in range(0, len(k), 32):
        scores = q @ k[block : block + 32].t() / 32**0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights, old = (scores - new).exp(), (top - new).exp()
        total = total * old + weights.sum(-1, keepdim=True)
        out = out * old + weights @ v[block : block + 32]
        top = new
    return out / total
