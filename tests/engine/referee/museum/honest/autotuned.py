"""Tries three ways at its first call and keeps the fastest."""

import time

import torch

PROBLEM = "product"
WAYS = (torch.mm, torch.matmul, lambda a, b: (b.t() @ a.t()).t())
BEST = []


def timed(way, a, b):
    start = time.perf_counter()
    for _ in range(5):
        way(a, b)
    return time.perf_counter() - start


def candidate(a, b):
    if not BEST:
        BEST.append(min(WAYS, key=lambda way: timed(way, a, b)))
    return BEST[0](a, b)
