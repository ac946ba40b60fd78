"""Counts the graphs that torch.compile compiled, and those captured for replay; torch is imported only when a function needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

from steelyard.errors import NotApplied, SteelyardError

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


def graphs_counted() -> Callable[[], dict[str, Any]]:
    """Return a function that counts the graphs compiled from now on; it raises if there are none, or if more are compiled while timing."""
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


def captured_graphs(where: Any) -> int:
    """Return how many CUDA graphs Inductor holds for a device at present."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    manager = trees.get_manager(where.index or 0, create_if_none_exists=False) if trees else None
    if manager is None:
        return 0
    waiting, found = [node for nodes in manager.roots.values() for node in nodes], 0
    while waiting:
        node = waiting.pop()
        found += 1
        waiting += [child for children in node.children.values() for child in children]
    return found
