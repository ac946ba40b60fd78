"""One XLA program for a whole call: jax.jit for JAX and for PyTorch on JAX, tf.function for TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplicable
from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of


@variant("jit", backends=["jax", "tensorflow", "torchax"], fresh=True, sticky=True)
def jit(task: Task, be: Any, way: Literal["call", "export"] = "call") -> Task:
    """jax.jit of the whole call, or tf.function with XLA; with way=export, jax.jit of the graph that torch.export makes.

    For torchax, way=export does what extract_jax of torch_xla2 did.
    """
    if way == "export" and be.name != "torchax":
        raise NotApplicable(f"way=export is for backend torchax; {be.name} has no graph of torch.export")
    made = be.exported if way == "export" else be.jitted
    return replace(task, fn=made(body_of(task), task.args, task.kwargs))
