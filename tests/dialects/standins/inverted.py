"""Inverted control, as Hugging Face's benchmark_v2 has it: the user's script makes a runner and calls it; we serve its names."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from steelyard.engine import driving
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task


@dataclass
class BenchmarkConfig:
    """What the original's users write."""

    seconds: float = 1e-3
    fault: str = "none"
    warmup: int = 0
    iterations: int = 3


class BenchmarkRunner:
    """The original's class, on our engine."""

    def run(self, config: BenchmarkConfig) -> dict[str, Any]:
        """Latencies of every iteration, or the error."""
        settings = Settings(fixed=Fixed(config.warmup, config.iterations), verify=False)
        case = Case("fake/work", (("seconds", config.seconds), ("fault", config.fault)), "fake")
        return told(driving.runner(settings).measure(case, settings=settings))

    def run_function(self, name: str, function: Any) -> dict[str, Any]:
        """A function of the user's own, as a workload that nobody registered."""
        return told(driving.runner().measure(Case(f"script/{name}", (), "numpy"), lambda be: Task(function)))


def told(found: driving.DrivenResult) -> dict[str, Any]:
    """As the original tells it."""
    if found.status != "ok":
        return {"error": f"{found.status}: {found.reason}"}
    return {"latencies": found.series.get("forward.measure.time", []), "median": found.figures["time"]}


def put_in_place() -> None:
    """The original's import name means us."""
    module = ModuleType("benchmark_v2")
    vars(module).update(BenchmarkConfig=BenchmarkConfig, BenchmarkRunner=BenchmarkRunner)
    sys.modules["benchmark_v2"] = module
