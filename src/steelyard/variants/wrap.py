"""A task's function and tensors, as several variants need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.task import Task


def body_of(task: Task) -> Callable[..., Any]:
    """Return the task's function; raise NotApplicable for a task that times itself."""
    if task.fn is None:
        raise NotApplicable("this task times itself; there is no function to change")
    return task.fn


def arrays(value: Any) -> Iterator[Any]:
    """Every tensor in nested arguments."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from arrays(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays(item)
