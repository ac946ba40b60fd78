"""The models of TorchAO's micro-benchmarks, built from sizes: m rows, k features in, n features out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.define import workload
from steelyard.model.registering import register
from steelyard.model.task import Task
from steelyard.workloads.layers.rounding import layer_tolerance

ACTIVATIONS = {
    "relu": "ReLU", "sigmoid": "Sigmoid", "leakyrelu": "LeakyReLU", "relu6": "ReLU6", "gelu": "GELU", "silu": "SiLU",
    "hardswish": "Hardswish",
}  # fmt: skip
HEADS, WIDER, STEPS = 8, 4, 16
TRAINABLE = ("eval", "fwd", "bwd", "train")
SIZES: dict[str, dict[str, Any]] = {"small": {"m": 32, "k": 256, "n": 512}, "h200": {"m": 16384, "k": 8192, "n": 1280, "dtype": "bf16"}}


@workload(
    "torchao/linear", axes={"m": [256], "k": [1024], "n": [1024], "dtype": ["bf16"]}, tags=["quantization"], sizes=SIZES, modes=TRAINABLE
)
def linear(m: int, k: int, n: int, dtype: str, be: Any) -> Task:
    """One linear layer without bias."""
    import torch

    model = be.module(lambda: torch.nn.Linear(k, n, bias=False), dtype)
    return _task(model, be.randn(m, k, dtype=dtype), m * n, flops=2.0 * m * k * n)


@workload(
    "torchao/ln_linear",
    axes={"m": [256], "k": [1024], "n": [1024], "activation": ["relu"], "dtype": ["bf16"]},
    tags=["quantization"],
    sizes=SIZES,
    modes=TRAINABLE,
)
def ln_linear(m: int, k: int, n: int, activation: str, dtype: str, be: Any) -> Task:
    """LayerNorm without weights, a linear layer without bias, and an activation."""
    import torch

    if activation not in ACTIVATIONS:
        raise UsageError(f"no activation is called {activation!r}", do=f"use one of {', '.join(ACTIVATIONS)}")
    norm, last = torch.nn.LayerNorm(k, elementwise_affine=False), getattr(torch.nn, ACTIVATIONS[activation])
    model = be.module(lambda: torch.nn.Sequential(norm, torch.nn.Linear(k, n, bias=False), last()), dtype)
    return _task(model, be.randn(m, k, dtype=dtype), m * n, flops=2.0 * m * k * n)


@workload(
    "torchao/transformer_block",
    axes={"m": [4], "k": [512], "n": [512], "dtype": ["bf16"]},
    tags=["quantization"],
    sizes={"small": {"m": 2, "k": 256, "n": 256}, "h200": {"m": 64, "k": 4096, "n": 4096, "dtype": "bf16"}},
    modes=TRAINABLE,
)
def transformer_block(m: int, k: int, n: int, dtype: str, be: Any) -> Task:
    """Attention of eight heads and a perceptron four times as wide, both after RMSNorm; m sequences of 16 steps, and n is not used."""
    import torch

    class Block(torch.nn.Module):
        """Attention, then the perceptron, each added to its input."""

        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = torch.nn.RMSNorm(k), torch.nn.RMSNorm(k)
            self.qkv, self.out = torch.nn.Linear(k, 3 * k, bias=False), torch.nn.Linear(k, k, bias=False)
            self.up, self.down = torch.nn.Linear(k, WIDER * k, bias=False), torch.nn.Linear(WIDER * k, k, bias=False)

        def forward(self, x: Any) -> Any:
            """One pass."""
            batch, steps, _ = x.shape
            parts = self.qkv(self.before(x)).reshape(batch, steps, 3, HEADS, k // HEADS).permute(2, 0, 3, 1, 4)
            q, key, value = parts.unbind(0)
            weights = torch.softmax(q @ key.transpose(-2, -1) * (k // HEADS) ** -0.5, dim=-1)
            x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, steps, k))
            return x + self.down(torch.nn.functional.gelu(self.up(self.between(x))))

    if k % HEADS:
        raise UsageError(f"k = {k} is not divisible by {HEADS} heads")
    model = be.module(Block, dtype)
    rows = m * STEPS
    task = _task(model, be.randn(m, STEPS, k, dtype=dtype), rows * k, flops=2.0 * rows * k * k * (4 + 2 * WIDER) + 4.0 * rows * STEPS * k)
    return replace(task, tolerance=layer_tolerance(dtype))


def _task(model: Any, x: Any, answered: int, flops: float) -> Task:
    """Return the task of a model on its input; it moves at least its weights, the input and `answered` output values."""
    held = sum(item.numel() * item.element_size() for item in model.parameters())
    moved = float(held + (x.numel() + answered) * x.element_size())
    return Task(model, (x,), parameters=tuple(model.parameters()), flops=flops, bytes=moved)


def register_model(name: str, build: Callable[..., Any] | None = None, *, tags: Sequence[str] = ("quantization",)) -> Any:
    """Register your model as `torchao/NAME`, for `run`, experiment files and YAML (`model_type: NAME`).

    `build(m, k, n, dtype, device)` returns the module and its input, or a tuple of inputs. Without `build`, a decorator is returned.
    Random numbers are seeded before each call, so that baseline and recipe start with the same weights.
    """
    if build is None:
        return lambda given: register_model(name, given, tags=tags)

    def body(m: int, k: int, n: int, dtype: str, be: Any) -> Task:
        import torch

        torch.manual_seed(be.seed)
        model, inputs = build(m, k, n, be.dtype(dtype), be.where)
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        return Task(model.eval(), given, parameters=tuple(model.parameters()), tolerance=layer_tolerance(dtype))

    body.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
    body.__doc__, body.__wrapped__ = build.__doc__, build  # type: ignore[attr-defined]
    axes: dict[str, list[Any]] = {"m": [256], "k": [1024], "n": [1024], "dtype": ["bf16"]}
    return register(workload(f"torchao/{name}", axes=axes, tags=tags, modes=TRAINABLE)(body), build)
