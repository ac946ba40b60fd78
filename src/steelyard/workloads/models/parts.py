"""What the models share: a transformer block with its cost, and losses against classes drawn beforehand.

Classes of modules are made by functions, once per model, because a framework is imported only when something is built.
Declared flops of a model count only its matrix products and convolutions; declared bytes count every weight read once (of
a table only the rows that are looked up), the input and the output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import model_tolerance
from steelyard.workloads.ops.attention import pairs
from steelyard.workloads.ops.cost import Array, divides

Module = Any

model = functools.partial(workload, modes=("eval", "fwd", "bwd", "train"))
"""A workload of torch modules, which can be trained."""


def block_class() -> type[Module]:
    """A transformer block with biases: norms before each half and the sum after it, or the sum first and norms on it."""
    import torch.nn.functional as F
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, hidden: int, heads: int, causal: bool) -> None:
            super().__init__()
            self.heads, self.causal = heads, causal
            self.qkv = nn.Linear(hidden, 3 * hidden)
            self.out = nn.Linear(hidden, hidden)

        def forward(self, x: Array) -> Array:
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(mixed.transpose(1, 2).flatten(-2))

    class Block(nn.Module):
        def __init__(
            self, hidden: int, heads: int, ffn: int, eps: float, causal: bool = False, norm_first: bool = True, approximate: str = "none"
        ) -> None:
            super().__init__()
            self.norm_first = norm_first
            self.norm_1 = nn.LayerNorm(hidden, eps)
            self.attention = Attention(hidden, heads, causal)
            self.norm_2 = nn.LayerNorm(hidden, eps)
            self.feed = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(approximate), nn.Linear(ffn, hidden))

        def forward(self, x: Array) -> Array:
            if self.norm_first:
                x = x + self.attention(self.norm_1(x))
                return x + self.feed(self.norm_2(x))
            x = self.norm_1(x + self.attention(x))
            return self.norm_2(x + self.feed(x))

    return Block


def block_flops(batch: int, seq: int, hidden: int, heads: int, ffn: int, causal: bool) -> float:
    """Products of one block: four projections, two of the MLP, and two for each query-key pair that counts."""
    divides("heads", heads, "hidden", hidden)
    return 2.0 * batch * seq * (4 * hidden * hidden + 2 * hidden * ffn) + 4.0 * batch * pairs(seq, causal) * hidden


def chain_flops(batch: int, *widths: int) -> float:
    """Products of linear layers that follow each other, given the widths between them."""
    return 2.0 * batch * sum(a * b for a, b in pairwise(widths))


def count(module: Module) -> int:
    """Number of weights."""
    return sum(item.numel() for item in module.parameters())


def surprise_at(targets: Array) -> Callable[[Array], Array]:
    """Mean cross-entropy of logits against these classes, in single precision as training does it."""

    def loss(logits: Array) -> Array:
        import torch.nn.functional as F

        return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())

    return loss


def model_task(module: Module, inputs: tuple[Array, ...], dtype: str, loss: Callable[[Array], Array], **known: Any) -> Task:
    """A model on its inputs with all its weights to train, and with what is known of its cost."""
    return Task(module, inputs, parameters=tuple(module.parameters()), loss=loss, tolerance=model_tolerance(dtype), **known)
