"""tf.function: TensorFlow sees the whole call at once and runs it as a graph of its own kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.wrap import body_of


@variant("graph", backends=["tensorflow"], fresh=True, sticky=True)
def graph(task: Task, be: Any) -> Task:
    """tf.function of the whole call, without XLA; the default of backend tensorflow."""
    return replace(task, fn=be.graphed(body_of(task)))
