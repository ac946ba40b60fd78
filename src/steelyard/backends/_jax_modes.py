"""A training step in JAX: one transformation for loss and gradients, then plain gradient descent; a single program if the call is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from steelyard.backends._jax_runtime import KeptProgram
from steelyard.backends._steps import COST, GRADIENT_NORM, RATE, STEP_TOLERANCE
from steelyard.errors import NotApplicable
from steelyard.measuring.verify import TOLERANCES
from steelyard.model.task import Task

if TYPE_CHECKING:
    from steelyard.backends.jax import Jax

SHORT = {"float16": "fp16", "bfloat16": "bf16"}


def train(be: Jax, task: Task) -> tuple[Task, Callable[[], Any] | None]:
    """Return the task as a training step, and a function that runs such a step without changing any weight.

    New weights are kept in `be.places`. A step in double precision is only used for its gradients, so its second value is None.
    """
    weights = [item for item in task.parameters if jnp.issubdtype(item.dtype, jnp.floating)]
    if not weights:
        raise NotApplicable("training needs parameters and this workload has none")
    if task.optimizer is not None:
        raise NotApplicable("backend jax trains by plain gradient descent", do="leave the optimizer out, or use backend torch")
    gradients, step = _programs(be, task, weights)
    args, kwargs = task.args, dict(task.kwargs)

    def present() -> tuple[list[Any], Any, Any]:
        return [be.now(item) for item in weights], *be.places.all((args, kwargs))

    def call(*args: Any, **kwargs: Any) -> Any:
        loss, moved = step([be.now(item) for item in weights], args, kwargs)
        for item, new in zip(weights, moved, strict=True):
            be.places.put(item, new)
        jax.block_until_ready(moved)
        return loss

    def observe() -> dict[str, Any]:
        """Return loss and gradients of one step that leaves the weights as they are."""
        loss, found = jax.block_until_ready(gradients(*present()))
        return {"loss": loss, "gradients": found}

    short = next((SHORT[name] for name in ("bfloat16", "float16") if any(str(item.dtype) == name for item in weights)), None)
    norm = task.norm_tolerance if task.norm_tolerance is not None else GRADIENT_NORM.get(short or "")
    usual = task.tolerance or (TOLERANCES[short] if short else STEP_TOLERANCE)
    made = replace(task, fn=call, observe=observe, reference=None, any_dtype=True, norm_tolerance=norm, tolerance=usual)
    made = replace(made, flops=task.flops * COST["train"] if task.flops else None, bytes=None)
    exact = any(item.dtype == jnp.float64 for item in weights)
    return made, None if exact else lambda: jax.block_until_ready(step(*present()))


def _programs(be: Jax, task: Task, weights: list[Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return two functions, one for loss and gradients and one for a whole step; both take every array as an argument.

    Gradients that are judged by their norm alone are joined into one array.
    """
    fn, loss_of = task.fn, task.loss or mean_square
    assert fn is not None
    leaves, shape = jax.tree_util.tree_flatten((task.args, dict(task.kwargs)))
    place_of = {id(item): place for place, item in enumerate(weights)}
    trained = {place: place_of[id(item)] for place, item in enumerate(leaves) if id(item) in place_of}
    if len(set(trained.values())) < len(weights):
        raise NotApplicable("some weights are not arguments of the call, so JAX has no gradients for them", do="pass them to the function")
    arrays = [place for place, item in enumerate(leaves) if isinstance(item, jax.Array) and place not in trained]
    plain = getattr(fn, "__wrapped__", fn)

    def loss(held: list[Any], given: list[Any]) -> Any:
        filled = {**dict(enumerate(leaves)), **{place: held[which] for place, which in trained.items()}}
        args, kwargs = jax.tree_util.tree_unflatten(shape, list({**filled, **dict(zip(arrays, given, strict=True))}.values()))
        return loss_of(plain(*args, **kwargs))

    def gradients(held: list[Any], given: list[Any]) -> Any:
        value, found = jax.value_and_grad(loss)(held, given)
        return value, found if task.norm_tolerance is None else jnp.concatenate([item.ravel() for item in found])

    def step(held: list[Any], given: list[Any]) -> Any:
        value, found = jax.value_and_grad(loss)(held, given)
        return value, [(item - RATE * slope).astype(item.dtype) for item, slope in zip(held, found, strict=True)]

    compiled: Callable[..., Any] = KeptProgram if isinstance(fn, KeptProgram) else jax.jit if hasattr(fn, "lower") else lambda part: part
    parts = [compiled(part) for part in (gradients, step)]

    def with_arrays(part: Callable[..., Any]) -> Callable[..., Any]:
        def run(held: list[Any], args: Any, kwargs: Any) -> Any:
            given = jax.tree_util.tree_leaves((args, kwargs))
            return part(held, [given[place] for place in arrays])

        return run

    return with_arrays(parts[0]), with_arrays(parts[1])


def mean_square(output: Any) -> Any:
    """Return the mean square of the outputs: the loss of workloads that define none."""
    parts = [item for item in jax.tree_util.tree_leaves(output) if jnp.issubdtype(item.dtype, jnp.floating)]
    return sum(jnp.square(item.astype(jnp.promote_types(item.dtype, jnp.float32))).mean() for item in parts)
