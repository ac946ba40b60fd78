"""torch.compile as a variant, checked to have compiled something."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

from steelyard.backends._torch_graphs import Mode, graphs_counted
from steelyard.errors import NotApplied, SteelyardError, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Task


@variant("compile", backends=["torch"], fresh=True, sticky=True)
def compile(
    task: Task, be: Any, mode: Mode = "default", fullgraph: bool = False, dynamic: bool | None = None, backend: str = "inductor"
) -> Task:
    """torch.compile with its mode, fullgraph and dynamic options."""
    import torch

    if task.fn is None:
        raise SteelyardError("this task times itself; there is no function to compile")
    if why := getattr(task.fn, "not_compiled", ""):
        raise NotApplied(why)
    if backend == "inductor" and be.device == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
        raise Unsupported("torch.compile needs a C++ compiler on the CPU and none is on PATH", do="apt-get install g++, or set CXX")
    kept: dict[str, Any] = {"mode": mode} if mode != "default" else {}
    compiled = torch.compile(task.fn, fullgraph=fullgraph, dynamic=dynamic, backend=backend, **kept)
    counted, earlier = graphs_counted(), task.inspect

    def inspect() -> dict[str, Any]:
        return {**(earlier() if earlier else {}), **counted()}

    asked = {"mode": mode, "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend}
    return replace(task, fn=compiled, inspect=inspect, effective={**task.effective, **asked})
