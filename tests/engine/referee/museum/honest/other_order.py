"""Adds up in an order that is drawn for every call, as atomic additions would."""

import torch

PROBLEM = "product"


def candidate(a, b):
    order = torch.randperm(a.shape[1])
    return a[:, order] @ b[order]
