"""What a variant sets for the whole process holds for itself alone: neither its reference nor its base is computed under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from steelyard.engine.pairs import weigh_heads
from steelyard.engine.weigh import weigh_case
from steelyard.errors import SteelyardError
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from tests.engine.own import case_of

SETTINGS = Settings(budget=0.002, telemetry=False)


def product(be: Any) -> Task:
    import torch

    return Task(torch.matmul, (be.randn(64, 64), be.randn(64, 64)))


def under_autocast(task: Task) -> Task:
    import torch

    fn: Callable[..., Any] | None = task.fn
    assert fn is not None
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    return replace(task, fn=lambda *args: fn(*args).float())


def test_the_reference_is_computed_without_it() -> None:
    loaded, case = case_of(product, under_autocast, backend="torch")
    record, _ = weigh_case(case, loaded, SETTINGS, lambda phase, fraction: None)
    assert record.status == "wrong" and "not the answer of torch eager" in record.reason


def test_it_is_not_compared_with_what_would_run_under_it() -> None:
    loaded, head = case_of(product, under_autocast, backend="torch")
    with pytest.raises(SteelyardError, match="for the whole process"):
        weigh_heads(head.against("eager"), [head], loaded, SETTINGS, lambda phase, fraction: None)
