"""One level of Strassen's algorithm, which loses a bit or two."""

import torch

PROBLEM = "product"


def candidate(a, b):
    m, k, n = a.shape[0] // 2, a.shape[1] // 2, b.shape[1] // 2
    p, q, r, s = a[:m, :k], a[:m, k:], a[m:, :k], a[m:, k:]
    t, u, v, w = b[:k, :n], b[:k, n:], b[k:, :n], b[k:, n:]
    first, second, third = (p + s) @ (t + w), (r + s) @ t, p @ (u - w)
    fourth, fifth, sixth, seventh = s @ (v - t), (p + q) @ w, (r - p) @ (t + u), (q - s) @ (v + w)
    top = torch.cat([first + fourth - fifth + seventh, third + fifth], 1)
    return torch.cat([top, torch.cat([second + fourth, first - second + third + sixth], 1)])
