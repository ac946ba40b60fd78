"""jax.jit for PyTorch on JAX: XLA sees the whole call at once, and not one operator after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of


@variant("jit", backends=["torchax"], fresh=True, sticky=True)
def jit(task: Task, be: Any, way: Literal["call", "export"] = "call") -> Task:
    """jax.jit of the whole call, as torch_xla2's extract_jax has it; by the way `export`, of the graph that torch.export makes."""
    made = be.exported if way == "export" else be.jitted
    return replace(task, fn=made(body_of(task), task.args, task.kwargs))
