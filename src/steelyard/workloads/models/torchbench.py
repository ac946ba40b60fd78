"""TorchBench: models by the contract of its packages, `Model(test, device, batch_size)`, then `get_module()`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from steelyard.errors import Unsupported, unknown
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.models.subject import MODES, TAGS, ModelDevice, ModelRequest, Subject, as_task, moved, placed, sow

PACKAGE = "torchbenchmark"
SOURCE = "git+https://github.com/pytorch/benchmark.git"
WITH_GRADIENTS = ("maml",)
"""Models whose inference differentiates."""


def bench_model(ask: ModelRequest, spot: ModelDevice) -> Subject:
    """A model of TorchBench on the device; if TorchBench is a checkout, its folder must be on the path."""
    if not ask.name.isidentifier():
        raise unknown("model", ask.name, [])
    try:
        made = _benchmark(ask, spot)
    except ModuleNotFoundError as error:
        if (error.name or PACKAGE).startswith(PACKAGE):
            raise
        raise Unsupported(f"{ask.name} needs {error.name}, which is not installed here", do=f"pip install {error.name}") from error
    module, inputs = made.get_module()
    module, inputs = placed(module, spot.where, ask.format), moved(inputs, spot.where, ask.format)
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    differentiates = any(word in ask.name for word in WITH_GRADIENTS)
    batch = getattr(made, "batch_size", None)
    return Subject(module, args, kwargs, batch_size=batch, differentiates=differentiates, facts={"library": "torchbench"})


def _benchmark(ask: ModelRequest, spot: ModelDevice) -> Any:
    """TorchBench's own object for a model; a model with a fixed batch size is not given another."""
    found = importlib.import_module(f"{PACKAGE}.models.{ask.name}")
    kind = getattr(found, "Model", None)
    if kind is None:
        raise Unsupported(f"{PACKAGE}.models.{ask.name} has no Model")
    batch = ask.batch_size if getattr(kind, "ALLOW_CUSTOMIZE_BSIZE", True) else None
    sow(spot.xla, ask.seed)
    return kind(test=ask.test, device="cpu" if spot.xla else str(spot.where), batch_size=batch)


@workload("torchbench/*", axes={"batch": [None], "dtype": ["fp32"]}, tags=TAGS, modes=MODES)
def torchbench(batch: int | None, dtype: str, be: Any, member: str, mode: str = "eval") -> Task:
    """Any model of TorchBench, such as torchbench/BERT_pytorch; its own inputs, and its own batch size unless one is given."""
    try:
        importlib.import_module(PACKAGE)
    except ModuleNotFoundError as error:
        do = f"pip install {SOURCE}, or put a checkout on PYTHONPATH"
        raise Unsupported("TorchBench is not installed here", do=do) from error
    try:
        task = as_task(bench_model, ModelRequest(member, batch_size=batch, dtype=dtype), be, mode)
    except ModuleNotFoundError as error:
        raise Unsupported(f"TorchBench has no model {member!r} here", why=str(error), do=f"python install.py {member}") from error
    return task
