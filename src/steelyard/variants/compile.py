"""torch.compile as a variant, checked to have compiled something."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from steelyard.errors import NotApplied, SteelyardError, Unsupported
from steelyard.model.define import variant
from steelyard.model.task import Task

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


@variant("compile", backends=["torch"], fresh=True, sticky=True)
def compile(
    task: Task, be: Any, mode: Mode = "default", fullgraph: bool = False, dynamic: bool | None = None, backend: str = "inductor"
) -> Task:
    """torch.compile with its mode, fullgraph and dynamic options."""
    import torch

    if task.fn is None:
        raise SteelyardError("this task times itself; there is no function to compile")
    if backend == "inductor" and be.device == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
        raise Unsupported("torch.compile needs a C++ compiler on the CPU and none is on PATH", do="apt-get install g++, or set CXX")
    kept: dict[str, Any] = {"mode": mode} if mode != "default" else {}
    compiled = torch.compile(task.fn, fullgraph=fullgraph, dynamic=dynamic, backend=backend, **kept)
    counted, earlier = graphs_counted(), task.inspect

    def inspect() -> dict[str, Any]:
        return {**(earlier() if earlier else {}), **counted()}

    asked = {"mode": mode, "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend}
    return replace(task, fn=compiled, inspect=inspect, effective={**task.effective, **asked})


def graphs_counted() -> Callable[[], dict[str, Any]]:
    """Counts what is compiled from now on; nothing compiled is not applied, and more of it while it is timed voids the figures."""
    from torch._dynamo.utils import counters

    before, broken = _counts(counters), _breaks(counters)
    settled: list[int] = []

    def count() -> dict[str, Any]:
        graphs, operations = (now - then for now, then in zip(_counts(counters), before, strict=True))
        if graphs <= 0:
            raise NotApplied("torch.compile compiled no graph, so this would time eager code", why=_reasons(counters))
        if operations <= 0:
            raise NotApplied("torch.compile compiled graphs without an operation, so this would time eager code", why=_reasons(counters))
        if settled and graphs != settled[0]:
            raise SteelyardError(f"torch.compile compiled {graphs - settled[0]} more graphs while it was timed", why="the figures are void")
        settled[:] = [graphs]
        return {"graphs": graphs, "graph_breaks": _breaks(counters) - broken}

    return count


def _counts(counters: Any) -> tuple[int, int]:
    """Graphs that were compiled, and operations found for them."""
    return int(counters["stats"]["unique_graphs"]), int(counters["stats"]["calls_captured"])


def _breaks(counters: Any) -> int:
    return int(sum(counters["graph_break"].values()))


def _reasons(counters: Any) -> str:
    return "; ".join(f"{reason} ({count})" for reason, count in list(counters["graph_break"].items())[:3])
