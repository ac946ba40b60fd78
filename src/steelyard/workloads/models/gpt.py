"""GPT: a decoder with learned positions, whose table of tokens is also its output layer."""

from __future__ import annotations

from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.models.parts import Module, block_class, block_flops, count, model, model_task, surprise_at
from steelyard.workloads.ops.cost import INDEX, Array, size

EPS = 1e-5


def decoder(layers: int, hidden: int, heads: int, ffn: int, vocab: int, seq: int) -> Module:
    """Embeddings, pre-norm causal blocks, and logits by the same table."""
    import torch.nn.functional as F
    from torch import nn

    block = block_class()

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, hidden)
            self.positions = nn.Embedding(seq, hidden)
            self.blocks = nn.Sequential(*(block(hidden, heads, ffn, EPS, causal=True, approximate="tanh") for _ in range(layers)))
            self.norm = nn.LayerNorm(hidden, EPS)

        def forward(self, tokens: Array) -> Array:
            x = self.blocks(self.tokens(tokens) + self.positions.weight)
            return F.linear(self.norm(x), self.tokens.weight)

    return Decoder()


@model(
    "model/gpt",
    axes={
        "batch": [2], "seq": [64], "layers": [2], "hidden": [256], "heads": [4], "ffn": [1024], "vocab": [1024], "dtype": ["fp32"],
    },
    tags=["model", "compute"],
    sizes={
        "small": {"batch": 1, "seq": 16, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 64},
        "h200": {
            "batch": 4, "seq": 1024, "layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 50304, "dtype": "bf16",
        },
    },
)  # fmt: skip
def gpt(batch: int, seq: int, layers: int, hidden: int, heads: int, ffn: int, vocab: int, dtype: str, be: Any) -> Task:
    """GPT decoder that reads a whole prompt and gives the logits of every place; compute bound."""
    tokens = batch * seq
    block = block_flops(batch, seq, hidden, heads, ffn, causal=True)
    x = be.integers(0, vocab, batch, seq)
    targets = be.integers(0, vocab, batch, seq)
    module = be.module(lambda: decoder(layers, hidden, heads, ffn, vocab, seq), dtype)
    return model_task(
        module,
        (x,),
        dtype,
        surprise_at(targets),
        flops=layers * block + 2.0 * tokens * hidden * vocab,
        bytes=size(INDEX, tokens) + size(dtype, count(module), tokens * vocab),
        items=tokens,
    )
