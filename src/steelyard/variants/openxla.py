"""torch.compile for XLA: dynamo captures the graph once, and calls do not trace it again, as they do with lazy tensors."""

from __future__ import annotations

from typing import Any

from steelyard.model.define import variant
from steelyard.model.task import Task
from steelyard.variants.compile import compile as compiled


@variant("openxla", backends=["torch_xla"], fresh=True, sticky=True)
def openxla(task: Task, be: Any, fullgraph: bool = False, dynamic: bool | None = None) -> Task:
    """torch.compile with backend openxla, which hands whole graphs to XLA."""
    return compiled.apply(task, be, fullgraph=fullgraph, dynamic=dynamic, backend="openxla")
