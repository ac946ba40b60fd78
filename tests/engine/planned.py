"""What plans are made of in tests: two workloads, their variants, and a catalogue of them."""

from __future__ import annotations

from typing import Any

from steelyard.model.define import Variant, workload
from steelyard.model.experiment import Matrix
from steelyard.model.task import Task
from steelyard.registry import Catalogue, Loaded

SIZES = {"big": {"n": 4096}, "huge": {"n": 65536}}


@workload("op/one", axes={"n": [8, 16], "dtype": ["fp32"], "fast": [False]}, backend="numpy", tags=["smoke"], sizes=SIZES)
def one(n: int, dtype: str, fast: bool, be: Any) -> Task:
    """First."""
    return Task()


@one.on("torch")
def one_torch(n: int, dtype: str, fast: bool, be: Any) -> Task:
    return Task()


@one.variant("fused")
def fused(task: Task, tile: int = 4) -> Task:
    return task


@workload("op/two", axes={"k": [1], "scale": [0.5]}, backend="numpy", tags=["smoke", "slow", "tier:1"])
def two(k: int, scale: float, be: Any) -> Task:
    """Second."""
    return Task()


@workload("fake/hidden", backend="fake")
def hidden(be: Any) -> Task:
    """Only by its own name."""
    return Task()


def changed(task: Task, mode: str = "x") -> Task:
    return task


VARIANTS = {"plain": Variant("plain", changed), "slow-start": Variant("slow-start", changed, fresh=True)}
LOADED = Loaded({item.name: item for item in (one, two, hidden)}, VARIANTS)
CATALOGUE = Catalogue({}, {}, {}, {"numpy": {}, "torch": {}, "fake": {}}).extend(LOADED.describe(), "test")
BOTH = Matrix(("op/one", "op/two"))
