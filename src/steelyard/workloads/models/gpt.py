"""GPT: a decoder with learned positions, whose table of tokens is also its output layer."""

from __future__ import annotations

from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.models.carried import Shapes, Weights, blocks_shapes, build_model, count_of, norm, norm_shapes, through_blocks
from steelyard.workloads.models.parts import Module, block_class, block_flops, model
from steelyard.workloads.ops.cost import INDEX, Array, size
from steelyard.workloads.ops.forms import EVERYWHERE
from steelyard.workloads.ops.spaces import Space

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


def decoder_shapes(layers: int, hidden: int, ffn: int, vocab: int, seq: int) -> Shapes:
    """The weights of the decoder, in the order of its module."""
    tables = {"tokens.weight": (vocab, hidden), "positions.weight": (seq, hidden)}
    return {**tables, **blocks_shapes(layers, hidden, ffn), **norm_shapes("norm", hidden)}


def decode(space: Space, w: Weights, tokens: Array, layers: int, heads: int) -> Array:
    """The decoder in other frameworks."""
    known = space.take(w["tokens.weight"], tokens) + w["positions.weight"]
    x = through_blocks(space, w, known, layers, heads, EPS, causal=True, approximate="tanh")
    return space.linear(norm(space, w, "norm", x, EPS), w["tokens.weight"])


@model(
    "model/gpt",
    axes={
        "batch": [2], "seq": [64], "layers": [2], "hidden": [256], "heads": [4], "ffn": [1024], "vocab": [1024], "dtype": ["fp32"],
    },
    tags=["model", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"batch": 1, "seq": 16, "layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 64},
        "h200": {
            "batch": 4, "seq": 1024, "layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 50304, "dtype": "bf16",
        },
    },
)  # fmt: skip
def gpt(batch: int, seq: int, layers: int, hidden: int, heads: int, ffn: int, vocab: int, dtype: str, be: Any) -> Task:
    """GPT decoder that reads a whole prompt and gives the logits of every position; compute bound."""
    tokens = batch * seq
    block = block_flops(batch, seq, hidden, heads, ffn, causal=True)
    x = be.integers(0, vocab, batch, seq)
    targets = be.integers(0, vocab, batch, seq)
    shapes = decoder_shapes(layers, hidden, ffn, vocab, seq)
    return build_model(
        be,
        dtype,
        x,
        targets,
        lambda: decoder(layers, hidden, heads, ffn, vocab, seq),
        shapes,
        lambda space, w, x: decode(space, w, x, layers, heads),
        flops=layers * block + 2.0 * tokens * hidden * vocab,
        bytes=size(INDEX, tokens) + size(dtype, count_of(shapes), tokens * vocab),
        items=tokens,
    )
