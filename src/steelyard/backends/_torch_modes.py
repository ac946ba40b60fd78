"""What a mode does to a PyTorch task: plain inference, recorded forward, backward alone, or a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from steelyard.backends._steps import COST, GRADIENT_NORM, GRADIENT_TOLERANCE, KINKED_NORM, RATE, STEP_TOLERANCE
from steelyard.errors import NotApplicable
from steelyard.measuring.verify import TOLERANCES
from steelyard.model.task import Task, nested

SEEN_MOVE = 0.1
SEED_PERIOD = 7
RECORDED = "includes the forward pass, which is recorded for the backward pass"


def in_mode(task: Task, mode: str) -> Task:
    """Return the task as the mode runs it, with its declared cost adjusted.

    The task is called here only if the mode needs it; a missing gradient is found at the first call.
    """
    if task.fn is None:
        return task
    if mode == "call":
        return task
    if mode == "eval":
        return replace(task, scope=nested(task.scope, torch.no_grad)) if task.parameters else task
    made = {"fwd": forward, "bwd": backward, "train": train}[mode](task)
    return replace(made, flops=task.flops * COST[mode] if task.flops else None, bytes=None if mode != "fwd" else task.bytes)


def forward(task: Task) -> Task:
    """The forward pass with its graph recorded, as training runs it."""
    ready = recording(task)
    fn, args, kwargs, prepare, seen = ready.fn, ready.args, ready.kwargs, ready.prepare, ready.observe
    assert fn is not None

    def observe() -> Any:
        if seen is not None:
            return _checked(seen())
        if prepare is not None:
            prepare()
        return _checked(fn(*args, **kwargs))

    return replace(ready, observe=observe)


def backward(task: Task) -> Task:
    """The backward pass alone: the graph is recorded once, untimed, and kept; nothing accumulates between calls."""
    ready = recording(task)
    outputs = _differentiable(ready())
    seeds = [_seed(output) for output in outputs]
    inputs, earlier = _leaves(ready), task.inspect

    def run() -> list[Any]:
        return list(torch.autograd.grad(outputs, inputs, seeds, retain_graph=True, allow_unused=True))

    def inspect() -> dict[str, Any]:
        return {**(earlier() if earlier else {}), "first_call": RECORDED}

    def observe() -> LazyAnswer:
        found = run()
        return LazyAnswer(gradients=lambda: together(found))

    short = _short_format(task, inputs)
    norm, together = _gradient_rule(task, inputs)
    made = replace(ready, fn=run, args=(), kwargs={}, prepare=None, observe=observe, inspect=inspect, reference=None)
    usual = GRADIENT_TOLERANCE if short is None and any(item.dtype == torch.float32 for item in inputs) else None
    return replace(made, any_dtype=short is not None, norm_tolerance=norm, tolerance=task.tolerance or usual)


def _seed(output: Any) -> Any:
    """Return the gradient that the backward pass starts from: quarters, exact in every format, repeated with a period that fits no shape.

    Ones would not work: for an output that sums to a constant, such as a softmax or a normalisation, the gradient would be only rounding.
    """
    quarters = torch.arange(1, SEED_PERIOD + 1, device=output.device).to(output.dtype) / 4
    whole = quarters.repeat(-(-output.numel() // SEED_PERIOD))[: output.numel()]
    return torch.empty_like(output).copy_(whole.view(output.shape))


def _stored_short(arrays: Sequence[Any]) -> str | None:
    """Return the short format that an array is stored in, bf16 before fp16; None if there is none."""
    kinds = {item.dtype for item in arrays}
    return "bf16" if torch.bfloat16 in kinds else "fp16" if torch.float16 in kinds else None


def _short_format(task: Task, arrays: Sequence[Any]) -> str | None:
    """Return the short format a task computes in, if any: that of its arrays, or the one whose usual tolerance a variant set."""
    if task.tolerance is None:
        return _stored_short(arrays)
    return _stored_short(arrays) or ("fp16" if task.tolerance[0] <= TOLERANCES["fp16"][0] else "bf16")


def _gradient_rule(task: Task, arrays: Sequence[Any]) -> tuple[float | None, Callable[[Any], Any]]:
    """Return how far gradients may be off, as a share of their norm, and the function that puts them into the form to compare.

    None compares every element; in low precision each array is compared as a whole. Against double precision the worst array
    of any layer or model here, up to 24 layers deep, is off by 0.006 in fp16 and 0.042 in bf16; twice that is allowed. If the
    workload sets a share, all arrays are compared as one, in any precision, so that a variant in another precision is compared in
    the same form: behind many kinks and norms the gradient of a small array is mostly rounding. All arrays together are off by up
    to 0.09 in fp16 and 0.25 in bf16.
    """
    own, short = task.norm_tolerance, _short_format(task, arrays)
    if own is None:
        return GRADIENT_NORM[short] if short else None, _as_is
    return max(own, KINKED_NORM[short]) if short and not _stored_short(arrays) else own, _joined


class TrainingStep:
    """Training steps over a task that records: forward, loss, backward, optimizer."""

    def __init__(self, task: Task) -> None:
        self.task, self.loss_of = task, task.loss or mean_square
        self.parameters = [item for item in task.parameters if item.requires_grad]
        if not self.parameters:
            raise NotApplicable("training needs parameters and this workload has none")
        self.optimizer = task.optimizer(self.parameters) if task.optimizer else torch.optim.SGD(self.parameters, lr=RATE)

    def clear(self) -> None:
        """Drop the gradients of the last step, and give the inputs back their values."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.task.prepare is not None:
            self.task.prepare()

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Run one step; return the model's output and its loss."""
        assert self.task.fn is not None
        output = self.task.fn(*args, **kwargs)
        loss = self.loss_of(output)
        loss.backward()
        self.optimizer.step()
        return output, loss


def train(task: Task) -> Task:
    """One step: forward, loss, backward, optimizer; gradients are cleared untimed before it."""
    ready = recording(task, inputs=False)
    whole = TrainingStep(ready)
    fn, args, kwargs, loss_of, parameters, optimizer = ready.fn, ready.args, ready.kwargs, whole.loss_of, whole.parameters, whole.optimizer
    assert fn is not None

    def forward_and_loss() -> Any:
        return loss_of(fn(*args, **kwargs))

    def step(*args: Any, **kwargs: Any) -> Any:
        loss = loss_of(fn(*args, **kwargs))
        loss.backward()
        optimizer.step()
        return loss

    def observe() -> LazyAnswer:
        """Run the whole first step at a rate of 0: it costs what a step costs and leaves the weights as they are."""
        whole.clear()
        loss = _checked(loss_of(_checked(fn(*args, **kwargs))))
        loss.backward()
        with _rate(optimizer, 0.0):
            optimizer.step()
        gradients = [item.grad for item in parameters]
        seen: dict[str, Callable[[], Any]] = {"loss": lambda: loss, "gradients": lambda: together(gradients)}
        if task.optimizer is None:
            seen["updates"] = lambda: together(updates(parameters, gradients, optimizer))
        return LazyAnswer(**seen)

    short = _short_format(task, parameters)
    norm, together = _gradient_rule(task, parameters)
    made = replace(ready, fn=step, prepare=whole.clear, reference=None, observe=observe, any_dtype=True)
    made = replace(made, phases=_phases(forward_and_loss, optimizer, whole.clear), norm_tolerance=norm)
    return replace(made, tolerance=task.tolerance or (TOLERANCES[short] if short else STEP_TOLERANCE))


class LazyAnswer(Mapping[str, Any]):
    """The parts of a call that verification compares, made when read, so that their time and memory are not counted as the call's."""

    def __init__(self, **parts: Callable[[], Any]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def updates(parameters: Sequence[Any], gradients: Sequence[Any], optimizer: Any) -> list[Any]:
    """Return what one optimizer step at a rate of 1 adds to each weight; the weights are restored.

    Gradients are scaled so that no update is lost in rounding, and the updates are scaled back, so that their size is right.
    """
    before = [item.detach().clone() for item in parameters]
    usual, factors = _size(before), []
    for item, gradient in zip(parameters, gradients, strict=True):
        size = 0.0 if gradient is None else _size([gradient])
        factors.append((_size([item.detach()]) or usual or 1.0) / size if size else 1.0)
        item.grad = None if gradient is None else (gradient.double() * factors[-1]).to(gradient.dtype)
    with _rate(optimizer, SEEN_MOVE):
        optimizer.step()
    scales = [SEEN_MOVE * factor for factor in factors]
    moved = [(item.detach().double() - old.double()) / scale for item, old, scale in zip(parameters, before, scales, strict=True)]
    with torch.no_grad():
        for item, old in zip(parameters, before, strict=True):
            item.copy_(old)
    return moved


def _as_is(gradients: Any) -> Any:
    return gradients


def _joined(gradients: Sequence[Any]) -> Any:
    return torch.cat([item.flatten() for item in gradients if item is not None])


@contextmanager
def _rate(optimizer: Any, rate: float) -> Iterator[None]:
    """Use another learning rate inside the block."""
    group = optimizer.param_groups[0]
    usual, group["lr"] = group["lr"], rate
    try:
        yield
    finally:
        group["lr"] = usual


def _size(tensors: Sequence[Any]) -> float:
    """Return the root mean square over several tensors."""
    total = sum(float(item.double().square().sum()) for item in tensors)
    return float((total / max(1, sum(item.numel() for item in tensors))) ** 0.5)


def _phases(forward_and_loss: Callable[[], Any], optimizer: Any, clear: Callable[[], None]) -> dict[str, Task]:
    """Return the three parts of a step as tasks; the parts before each are run untimed."""
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
    """Return the mean square of the outputs: the loss of workloads that define none."""
    parts = [item for item in tensors(output) if item.is_floating_point()]
    return sum((item.float().square().mean() for item in parts), start=torch.zeros((), device=parts[0].device))


def recording(task: Task, *, inputs: bool = True) -> Task:
    """Mark what needs gradients: parameters and, with `inputs`, floating-point arguments; keyword arguments are constants."""
    for item in [*task.parameters, *(tensors(list(task.args)) if inputs else [])]:
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.is_leaf:
            item.requires_grad_(True)
    return replace(task, scope=nested(task.scope, torch.enable_grad))


def _differentiable(output: Any) -> list[Any]:
    found = [item for item in tensors(output) if item.requires_grad]
    if not found:
        raise NotApplicable("no output of this workload has a gradient")
    return found


def _checked(output: Any) -> Any:
    """Return the output; raise NotApplicable if it has no gradient."""
    _differentiable(output)
    return output


def _leaves(task: Task) -> list[Any]:
    found = [*task.parameters, *tensors([*task.args, *task.kwargs.values()])]
    unique = {id(item): item for item in found if isinstance(item, torch.Tensor) and item.requires_grad and item.is_leaf}
    return list(unique.values())


def tensors(value: Any) -> list[Any]:
    """Every tensor in nested arguments or answers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [item for part in value for item in tensors(part)]
    return []
