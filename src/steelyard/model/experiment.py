"""Experiment: a matrix of cases with rules, as written in a file or built in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from steelyard.model.case import Case

Sampling = Literal["blocks", "calls"]
Isolation = Literal["case", "workload", "none"]

BUDGETS: dict[str, float] = {"quick": 0.3, "normal": 1.0, "thorough": 5.0}


@dataclass(frozen=True)
class Settings:
    """How to measure: everything that changes a figure's precision but not its meaning.

    The last five ask for passes beside the timing; `compile_time` is how many processes each of its figures comes from.
    """

    budget: float = BUDGETS["normal"]
    precision: float = 0.01
    sampling: Sampling = "blocks"
    warmup: float | None = None
    rtol: float | None = None
    atol: float | None = None
    verify: bool = True
    seed: int = 0
    timeout: float = 300.0
    memory: int | None = None
    isolate: Isolation = "workload"
    vs: str | None = None
    runs: int | None = None
    margin: float = 0.02
    telemetry: bool = True
    peak_memory: bool = False
    memory_snapshot: bool = False
    profile: bool = False
    ncu: bool = False
    compile_time: int | None = None


@dataclass(frozen=True)
class Matrix:
    """A product of axes; `axes` are workload parameters, everything else is how and where.

    `origin` is its place in a file, and `label` what its cases are called there.
    """

    workload: tuple[str, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    backend: tuple[str, ...] = ()
    variant: tuple[str, ...] = ("eager",)
    mode: tuple[str, ...] = ("eval",)
    device: tuple[str, ...] = ("cpu",)
    threads: tuple[int, ...] = (1,)
    ranks: tuple[int, ...] = (1,)
    flags: tuple[Mapping[str, str], ...] = ({},)
    origin: str = field(default="", compare=False)
    label: str = field(default="", compare=False)


@dataclass(frozen=True)
class Rule:
    """Drops the cases for which every key listed is equal, and says why."""

    match: Mapping[str, Any]
    reason: str = ""

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.match.items())


@dataclass(frozen=True)
class Experiment:
    """Named matrices, exact cases added to them, and rules that drop some; `mistakes` are parts of a file that cannot run, a line each."""

    name: str = "command line"
    description: str = ""
    matrix: tuple[Matrix, ...] = ()
    include: tuple[str | Case, ...] = ()
    exclude: tuple[Rule, ...] = ()
    settings: Settings = Settings()
    files: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
