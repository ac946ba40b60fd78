"""BERT: an encoder that classifies sequences, with norms after each sum."""

from __future__ import annotations

from typing import Any

from steelyard.model.task import Task
from steelyard.workloads.models.carried import (
    Shapes,
    Weights,
    affine,
    affine_shapes,
    blocks_shapes,
    build_model,
    count_of,
    norm,
    norm_shapes,
    through_blocks,
)
from steelyard.workloads.models.parts import Module, block_class, block_flops, model
from steelyard.workloads.ops.cost import INDEX, Array, size
from steelyard.workloads.ops.forms import EVERYWHERE
from steelyard.workloads.ops.spaces import Space

EPS = 1e-12
SEGMENTS = 2


def encoder(layers: int, hidden: int, heads: int, ffn: int, vocab: int, seq: int, classes: int) -> Module:
    """Embeddings, blocks, and a pooler and classifier on the first token; all tokens are of the first segment."""
    import torch
    from torch import nn

    block = block_class()

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, hidden)
            self.positions = nn.Embedding(seq, hidden)
            self.segments = nn.Embedding(SEGMENTS, hidden)
            self.norm = nn.LayerNorm(hidden, EPS)
            self.blocks = nn.Sequential(*(block(hidden, heads, ffn, EPS, norm_first=False) for _ in range(layers)))
            self.pool = nn.Linear(hidden, hidden)
            self.classify = nn.Linear(hidden, classes)

        def forward(self, tokens: Array) -> Array:
            known = self.tokens(tokens) + self.positions.weight + self.segments.weight[0]
            x = self.blocks(self.norm(known))
            return self.classify(torch.tanh(self.pool(x[:, 0])))

    return Encoder()


def encoder_shapes(layers: int, hidden: int, ffn: int, vocab: int, seq: int, classes: int) -> Shapes:
    """The weights of the encoder, in the order of its module."""
    tables = {"tokens.weight": (vocab, hidden), "positions.weight": (seq, hidden), "segments.weight": (SEGMENTS, hidden)}
    head = affine_shapes("pool", hidden, hidden) | affine_shapes("classify", classes, hidden)
    return {**tables, **norm_shapes("norm", hidden), **blocks_shapes(layers, hidden, ffn), **head}


def encode(space: Space, w: Weights, tokens: Array, layers: int, heads: int) -> Array:
    """The encoder in other frameworks."""
    known = space.take(w["tokens.weight"], tokens) + w["positions.weight"] + w["segments.weight"][0]
    x = through_blocks(space, w, norm(space, w, "norm", known, EPS), layers, heads, EPS, norm_first=False)
    return affine(space, w, "classify", space.tanh(affine(space, w, "pool", x[:, 0])))


@model(
    "model/bert",
    axes={
        "batch": [2], "seq": [64], "layers": [2], "hidden": [256], "heads": [4], "ffn": [1024], "vocab": [4096], "classes": [2],
        "dtype": ["fp32"],
    },
    tags=["model", "compute"],
    backend=EVERYWHERE,
    sizes={
        "small": {"batch": 1, "seq": 16, "layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 64},
        "h200": {
            "batch": 64, "seq": 512, "layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 30522, "dtype": "bf16",
        },
    },
)  # fmt: skip
def bert(
    batch: int, seq: int, layers: int, hidden: int, heads: int, ffn: int, vocab: int, classes: int, dtype: str, be: Any
) -> Task:  # fmt: skip
    """BERT encoder that classifies whole sequences without padding; compute bound, with memory-bound norms between products."""
    tokens = batch * seq
    block = block_flops(batch, seq, hidden, heads, ffn, causal=False)
    x = be.integers(0, vocab, batch, seq)
    targets = be.integers(0, classes, batch)
    shapes = encoder_shapes(layers, hidden, ffn, vocab, seq, classes)
    read = count_of(shapes) - vocab * hidden + tokens * hidden
    return build_model(
        be,
        dtype,
        x,
        targets,
        lambda: encoder(layers, hidden, heads, ffn, vocab, seq, classes),
        shapes,
        lambda space, w, x: encode(space, w, x, layers, heads),
        flops=layers * block + 2.0 * batch * hidden * (hidden + classes),
        bytes=size(INDEX, tokens) + size(dtype, read, batch * classes),
        items=tokens,
    )
