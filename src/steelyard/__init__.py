"""Steelyard weighs any ML workload, on any stack, against any other.

The names below are loaded when first used, so that importing Steelyard costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steelyard.version import __version__

if TYPE_CHECKING:
    from steelyard.backends._torch_captures import capture
    from steelyard.comparing import compare
    from steelyard.drop_in import do_bench
    from steelyard.library import measure, run
    from steelyard.model.case import Case
    from steelyard.model.define import metric, variant, workload
    from steelyard.model.experiment import Experiment, Matrix, Rule, Settings
    from steelyard.model.operators import generator, iterator, operator
    from steelyard.model.record import Record
    from steelyard.model.task import Reading, Task
    from steelyard.refereeing import judge, judge_all
    from steelyard.variants.recipe import Pruning, register_recipe
    from steelyard.workloads.torchao import register_model

_HOMES = {
    "workload": "model.define", "variant": "model.define", "metric": "model.define",
    "operator": "model.operators", "iterator": "model.operators", "generator": "model.operators",
    "Task": "model.task", "Reading": "model.task", "Case": "model.case", "Record": "model.record",
    "Experiment": "model.experiment", "Matrix": "model.experiment", "Rule": "model.experiment", "Settings": "model.experiment",
    "capture": "backends._torch_captures", "judge": "refereeing", "judge_all": "refereeing",
    "compare": "comparing", "measure": "library", "run": "library", "do_bench": "drop_in", "register_recipe": "variants.recipe",
    "register_model": "workloads.torchao", "Pruning": "variants.recipe",
}  # fmt: skip

__all__ = [
    "Case",
    "Experiment",
    "Matrix",
    "Pruning",
    "Reading",
    "Record",
    "Rule",
    "Settings",
    "Task",
    "__version__",
    "capture",
    "compare",
    "do_bench",
    "generator",
    "iterator",
    "judge",
    "judge_all",
    "measure",
    "metric",
    "operator",
    "register_model",
    "register_recipe",
    "run",
    "variant",
    "workload",
]


def __dir__() -> list[str]:
    """List all public names, including those that are not loaded yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"steelyard.{_HOMES[name]}"), name)
