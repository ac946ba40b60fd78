"""What a mode does to a PyTorch task: plain inference, recorded forward, backward alone, or a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from steelyard.errors import NotApplicable
from steelyard.model.task import Task

RATE = 1e-4
SEEN_MOVE = 0.1
STEP_TOLERANCE, LOW_STEP_NORM = (1e-3, 5e-3), 0.7
COST = {"fwd": 1.0, "bwd": 2.0, "train": 3.0}


def in_mode(task: Task, mode: str) -> Task:
    """The task as the mode runs it; its declared cost follows."""
    if task.fn is None:
        return task
    if mode == "eval":
        return replace(task, scope=_both(task.scope, torch.no_grad)) if task.parameters else task
    made = {"fwd": forward, "bwd": backward, "train": train}[mode](task)
    return replace(made, flops=task.flops * COST[mode] if task.flops else None, bytes=None if mode != "fwd" else task.bytes)


def forward(task: Task) -> Task:
    """The forward pass with its graph recorded, as training runs it."""
    ready = _recording(task)
    _check(ready, ready())
    return ready


def backward(task: Task) -> Task:
    """The backward pass alone: the graph is recorded once, untimed, and kept; nothing accumulates between calls."""
    ready = _recording(task)
    outputs = _check(ready, ready())
    seeds = [torch.ones_like(output) for output in outputs]
    inputs = _leaves(ready)

    def run() -> list[Any]:
        return list(torch.autograd.grad(outputs, inputs, seeds, retain_graph=True, allow_unused=True))

    low = task.tolerance is not None or any(item.dtype in (torch.float16, torch.bfloat16) for item in inputs)
    return replace(ready, fn=run, args=(), kwargs={}, reference=None, any_dtype=low, norm_tolerance=LOW_STEP_NORM if low else None)


def train(task: Task) -> Task:
    """One step: forward, loss, backward, optimizer; gradients are cleared untimed before it."""
    ready = _recording(task, inputs=False)
    parameters = [item for item in ready.parameters if item.requires_grad]
    if not parameters:
        raise NotApplicable("training needs parameters and this workload has none")
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    fn, args, kwargs, loss_of = ready.fn, ready.args, ready.kwargs, ready.loss or mean_square
    assert fn is not None
    _check(ready, ready())

    def clear() -> None:
        optimizer.zero_grad(set_to_none=True)

    def forward_and_loss() -> Any:
        return loss_of(fn(*args, **kwargs))

    def step() -> Any:
        loss = forward_and_loss()
        loss.backward()
        optimizer.step()
        return loss

    def observe() -> dict[str, Any]:
        """One step as verification sees it, with a rate at which weights visibly move; they are put back afterwards."""
        clear()
        loss = forward_and_loss()
        loss.backward()
        before = [item.detach().clone() for item in parameters]
        group = optimizer.param_groups[0]
        group["lr"] = SEEN_MOVE * _size(before) / max(_size([item.grad for item in parameters if item.grad is not None]), 1e-30)
        optimizer.step()
        group["lr"] = RATE
        updates = [item.detach().double() - old.double() for item, old in zip(parameters, before, strict=True)]
        with torch.no_grad():
            for item, old in zip(parameters, before, strict=True):
                item.copy_(old)
        return {"loss": loss, "gradients": [item.grad for item in parameters], "updates": updates}

    wide = parameters[0].dtype in (torch.float32, torch.float64)
    made = replace(ready, fn=step, args=(), kwargs={}, prepare=clear, reference=None, observe=observe, any_dtype=True)
    exact = wide and task.tolerance is None
    made = replace(made, phases=_phases(forward_and_loss, optimizer, clear))
    return replace(made, tolerance=STEP_TOLERANCE) if exact else replace(made, norm_tolerance=LOW_STEP_NORM)


def _size(tensors: Sequence[Any]) -> float:
    """Root mean square over several tensors."""
    total = sum(float(item.double().square().sum()) for item in tensors)
    return float((total / max(1, sum(item.numel() for item in tensors))) ** 0.5)


def _phases(forward_and_loss: Callable[[], Any], optimizer: Any, clear: Callable[[], None]) -> dict[str, Task]:
    """The three parts of a step; what precedes a part is done untimed."""
    held: list[Any] = []

    def before_backward() -> None:
        clear()
        held[:] = [forward_and_loss()]

    def before_update() -> None:
        before_backward()
        held[0].backward()

    return {
        "forward": Task(forward_and_loss, prepare=clear),
        "backward": Task(lambda: held[0].backward(), prepare=before_backward),
        "optimizer": Task(optimizer.step, prepare=before_update),
    }


def mean_square(output: Any) -> Any:
    """A loss for outputs that have none of their own."""
    parts = [item for item in _tensors(output) if item.is_floating_point()]
    return sum((item.float().square().mean() for item in parts), start=torch.zeros((), device=parts[0].device))


def _recording(task: Task, *, inputs: bool = True) -> Task:
    """Mark what gradients flow to: parameters, and unless a whole network is trained floating arguments; keywords are constants."""
    for item in [*task.parameters, *(_tensors(list(task.args)) if inputs else [])]:
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.is_leaf:
            item.requires_grad_(True)
    return replace(task, scope=_both(task.scope, torch.enable_grad))


def _check(task: Task, output: Any) -> list[Any]:
    found = [item for item in _tensors(output) if item.requires_grad]
    if not found:
        raise NotApplicable("no output of this workload has a gradient")
    return found


def _leaves(task: Task) -> list[Any]:
    found = [*task.parameters, *_tensors([*task.args, *task.kwargs.values()])]
    unique = {id(item): item for item in found if isinstance(item, torch.Tensor) and item.requires_grad and item.is_leaf}
    return list(unique.values())


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [item for part in value for item in _tensors(part)]
    return []


def _both(
    outer: Callable[[], AbstractContextManager[Any]] | None, inner: Callable[[], AbstractContextManager[Any]]
) -> Callable[[], AbstractContextManager[Any]]:
    if outer is None:
        return inner

    def enter() -> AbstractContextManager[Any]:
        from contextlib import ExitStack

        stack = ExitStack()
        stack.enter_context(outer())
        stack.enter_context(inner())
        return stack

    return enter
