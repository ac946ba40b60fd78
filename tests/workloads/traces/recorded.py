"""Traces for the tests of the replay: recorded by PyTorch here, or made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, record_function

from tests.traces.made import node, ports

FLOAT, LONG = "Tensor(float)", "Tensor(long int)"
MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
EMBEDDING = (
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"
)


def record(path: Path, step: Callable[[], Any]) -> Path:
    """One call of a step as PyTorch records it."""
    observer = ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    with record_function("ProfilerStep#0"):
        step()
    observer.stop()
    observer.unregister_callback()
    return path


def training_step() -> Callable[[], None]:
    """A small model with what makes replays hard: indices, a norm, dropout's mask, a loss, and a foreach optimizer."""
    torch.manual_seed(0)
    table = torch.nn.EmbeddingBag(50, 8, mode="sum")
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)
    )
    optimizer = torch.optim.AdamW([*table.parameters(), *model.parameters()], foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        answer = model(table(indices, offsets))
        torch.nn.functional.cross_entropy(answer, target).backward()
        optimizer.step()

    indices, offsets, target = torch.randint(0, 50, (24,)), torch.arange(0, 24, 4), torch.randint(0, 4, (6,))
    step()
    return step


def tensor(number: int, shape: list[int], kind: str = FLOAT, storage: int | None = None, offset: int = 0, strides: Any = None) -> Any:
    """A tensor as a port has it."""
    count, steps, step = 1, [], 1
    for size in shape:
        count *= size
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size
    width = 8 if kind == LONG else 4
    return [number, storage or number + 1000, offset, count, width, "cpu"], shape, kind, strides or steps


def plain(value: Any, kind: str) -> Any:
    """A plain value as a port has it."""
    return value, [], kind, []


def call(number: int, schema: str, inputs: list[Any], outputs: list[Any], parent: int = 2, **more: Any) -> dict[str, Any]:
    """A node of an operator."""
    return node(number, schema.partition("(")[0].partition(".")[0], parent, schema, ports(*inputs), ports(*outputs), **more)


def write(path: Path, *nodes: dict[str, Any]) -> Path:
    """A whole trace of these nodes."""
    whole = [*nodes, node(2, "[pytorch|profiler|execution_trace|thread]", 1), node(1, "[pytorch|profiler|execution_trace|process]", 1)]
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 1, "nodes": whole, "finish_ts": 2}))
    return path
