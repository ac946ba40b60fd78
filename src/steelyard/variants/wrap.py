"""What several variants need of a task: its function, its arrays, and scopes inside its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from steelyard.errors import NotApplicable
from steelyard.model.task import Task

Scope = Callable[[], AbstractContextManager[Any]]


def body_of(task: Task) -> Callable[..., Any]:
    """The function a variant changes; tasks that time themselves have none."""
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


def floating_inputs(task: Task) -> list[Any]:
    """Floating tensors that go into the call: arguments and parameters."""
    return [item for item in arrays([task.args, task.kwargs, task.parameters]) if item.is_floating_point()]


def nested(outer: Scope | None, inner: Scope) -> Scope:
    """Two scopes as one, the earlier variant's outermost; entered around a block, so that entering costs no call anything."""
    if outer is None:
        return inner

    @contextmanager
    def both() -> Iterator[None]:
        with outer(), inner():
            yield

    return both
