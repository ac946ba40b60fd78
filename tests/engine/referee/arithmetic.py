"""The same operations by other honest algorithms, and by coarser arithmetic, as candidates do them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def rounded(x: Tensor, bits: int) -> Tensor:
    """Round to so many bits of mantissa; 10 are those of TF32, 7 of bfloat16."""
    whole = x.contiguous().view(torch.int32)
    return ((whole + (1 << (22 - bits))) & ~((1 << (23 - bits)) - 1)).view(torch.float32)


def tf32(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *inputs: function(*(rounded(item, 10) for item in inputs))


def through(dtype: torch.dtype, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """All of it in another format."""
    return lambda *inputs: function(*(item.to(dtype) for item in inputs)).to(inputs[0].dtype)


def split_k(a: Tensor, b: Tensor) -> Tensor:
    parts = [x @ y for x, y in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)]
    return torch.stack(parts).sum(0)


def one_by_one(a: Tensor, b: Tensor) -> Tensor:
    """One running sum for each element, as a thread of a simple kernel has it."""
    out = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        out += a[:, k : k + 1] * b[k : k + 1]
    return out


def strassen(a: Tensor, b: Tensor, levels: int = 3) -> Tensor:
    if not levels:
        return a @ b
    (a11, a12), (a21, a22) = ([*row.chunk(2, 1)] for row in a.chunk(2, 0))
    (b11, b12), (b21, b22) = ([*row.chunk(2, 1)] for row in b.chunk(2, 0))
    below = levels - 1
    m1, m2, m3 = strassen(a11 + a22, b11 + b22, below), strassen(a21 + a22, b11, below), strassen(a11, b12 - b22, below)
    m4, m5 = strassen(a22, b21 - b11, below), strassen(a11 + a12, b22, below)
    m6, m7 = strassen(a21 - a11, b11 + b12, below), strassen(a12 - a22, b21 + b22, below)
    return torch.cat([torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])


def convolution(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def winograd(x: Tensor, w: Tensor) -> Tensor:
    """F(4x4, 3x3), which loses about three bits."""
    b = torch.tensor(
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1.0]]
    )
    g = torch.tensor(
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]
    )
    a = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1.0]])
    tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)
    inner = torch.einsum("ij,nchwjk,lk->nchwil", b, tiles, b)
    weights = torch.einsum("ij,ocjk,lk->ocil", g, w, g)
    product = torch.einsum("ocil,nchwil->nohwil", weights, inner)
    out = torch.einsum("ij,nohwjk,lk->nohwil", a, product, a)
    return out.permute(0, 1, 2, 4, 3, 5).reshape(x.shape[0], w.shape[0], x.shape[2], x.shape[3])


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def online_softmax(x: Tensor) -> Tensor:
    top, total = torch.full(x.shape[:1], -torch.inf), torch.zeros(x.shape[0])
    for part in x.split(64, 1):
        new = torch.maximum(top, part.max(1).values)
        total, top = total * torch.exp(top - new) + torch.exp(part - new[:, None]).sum(1), new
    return torch.exp(x - top[:, None]) / total[:, None]


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def one_pass_norm(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention block by block, in single precision."""
    dtype, (q, k, v) = q.dtype, (item.float() for item in (q, k, v))
    out, top, total = torch.zeros_like(q), torch.full(q.shape[:-1], -torch.inf), torch.zeros(q.shape[:-1])
    for keys, values in zip(k.split(32, 2), v.split(32, 2), strict=True):
        scores = (q @ keys.transpose(-1, -2)) * q.shape[-1] ** -0.5
        new = torch.maximum(top, scores.amax(-1))
        shares, fade = torch.exp(scores - new[..., None]), torch.exp(top - new)
        total, out, top = total * fade + shares.sum(-1), out * fade[..., None] + shares @ values, new
    return (out / total[..., None]).to(dtype)


def eager_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every step rounded to the format of the inputs."""
    return torch.softmax((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5, -1) @ v


def by_threads(x: Tensor) -> Tensor:
    """A sum whose threads add a thousand numbers each, and then to one another."""
    totals = torch.zeros(x.numel() // 1000)
    for row in x.reshape(1000, -1):
        totals += row
    return totals.sum()


def by_atomics(x: Tensor) -> Any:
    """A sum to which blocks of 256 numbers are added one after the other."""
    total = torch.zeros(())
    for part in x.split(256):
        total = total + part.sum()
    return total
