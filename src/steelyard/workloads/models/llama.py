"""Llama: a decoder with RMS norms, rotary positions, grouped queries and gated MLPs, and no biases."""

from __future__ import annotations

from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.models.parts import Module, count, model, model_task, surprise_at
from steelyard.workloads.ops.attention import pairs
from steelyard.workloads.ops.cost import INDEX, Array, divides, size

EPS = 1e-5
BASE = 10000.0


def decoder(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, seq: int, base: float = BASE) -> Module:
    """Embedding, pre-norm causal blocks, and a separate output layer; the rotations of all positions are computed once."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    width = hidden // heads

    def turn(x: Array, cos: Array, sin: Array) -> Array:
        one, other = x.chunk(2, dim=-1)
        return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(hidden, hidden, bias=False)
            self.k = nn.Linear(hidden, kv_heads * width, bias=False)
            self.v = nn.Linear(hidden, kv_heads * width, bias=False)
            self.out = nn.Linear(hidden, hidden, bias=False)

        def forward(self, x: Array, cos: Array, sin: Array) -> Array:
            q, k, v = (part(x).unflatten(-1, (-1, width)).transpose(1, 2) for part in (self.q, self.k, self.v))
            q, k = turn(q, cos, sin), turn(k, cos, sin)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            return self.out(mixed.transpose(1, 2).flatten(-2))

    class Feed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(hidden, ffn, bias=False)
            self.up = nn.Linear(hidden, ffn, bias=False)
            self.down = nn.Linear(ffn, hidden, bias=False)

        def forward(self, x: Array) -> Array:
            return self.down(F.silu(self.gate(x)) * self.up(x))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.attention = nn.RMSNorm(hidden, EPS), Attention()
            self.norm_2, self.feed = nn.RMSNorm(hidden, EPS), Feed()

        def forward(self, x: Array, cos: Array, sin: Array) -> Array:
            x = x + self.attention(self.norm_1(x), cos, sin)
            return x + self.feed(self.norm_2(x))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.RMSNorm(hidden, EPS)
            self.out = nn.Linear(hidden, vocab, bias=False)
            speed = base ** (torch.arange(0, width, 2, dtype=torch.float64) / -width)
            angle = torch.outer(torch.arange(seq, dtype=torch.float64), speed)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, tokens: Array) -> Array:
            x = self.tokens(tokens)
            cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.out(self.norm(x))

    return Decoder()


@model(
    "model/llama",
    axes={
        "batch": [2], "seq": [64], "layers": [2], "hidden": [256], "heads": [4], "kv_heads": [2], "ffn": [688], "vocab": [1024],
        "dtype": ["fp32"],
    },
    tags=["model", "compute"],
    sizes={
        "small": {"batch": 1, "seq": 16, "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 64},
        "h200": {
            "batch": 4, "seq": 2048, "layers": 22, "hidden": 2048, "heads": 32, "kv_heads": 4, "ffn": 5632, "vocab": 32000,
            "dtype": "bf16",
        },
    },
)  # fmt: skip
def llama(
    batch: int, seq: int, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, dtype: str, be: Any
) -> Task:  # fmt: skip
    """Llama decoder that reads a whole prompt and gives the logits of every position; compute bound, with memory-bound steps to fuse."""
    tokens = batch * seq
    width = divides("heads", heads, "hidden", hidden)
    divides("kv_heads", kv_heads, "heads", heads)
    divides("halves", 2, "head width", width)
    block = 2 * hidden * hidden + 2 * hidden * kv_heads * width + 3 * hidden * ffn
    x = be.integers(0, vocab, batch, seq)
    targets = be.integers(0, vocab, batch, seq)
    module = be.module(lambda: decoder(layers, hidden, heads, kv_heads, ffn, vocab, seq), dtype)
    read = count(module) - vocab * hidden + tokens * hidden
    return model_task(
        module,
        (x,),
        dtype,
        surprise_at(targets),
        flops=2.0 * tokens * (layers * block + hidden * vocab) + 4.0 * layers * batch * pairs(seq, True) * hidden,
        bytes=size(INDEX, tokens) + size(dtype, read, tokens * vocab),
        items=tokens,
    )
