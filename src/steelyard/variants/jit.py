"""jax.jit for PyTorch on JAX: XLA sees the whole call at once, and not one operator after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of


@variant("jit", backends=["torchax"], fresh=True, sticky=True)
def jit(task: Task, be: Any) -> Task:
    """jax.jit of the whole call, as torch_xla2's extract_jax has it."""
    return replace(task, fn=be.jitted(body_of(task), task.args, task.kwargs))
