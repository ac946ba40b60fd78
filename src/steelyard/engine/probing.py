"""Tests which recipes work here: each is tried on a small linear layer in a worker, like any case."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine import conduct
from steelyard.engine.run import NoWatch, RunWatch
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Record
from steelyard.model.words import Word, find_named
from steelyard.store.runs import Store

WORKLOAD, SIZE = "torchao/linear", {"m": 32, "k": 256, "n": 512}


@dataclass(frozen=True)
class RecipeTrial:
    """The result for one recipe: its status with the reason, its SQNR in decibels, and how many times smaller the weights are."""

    name: str
    status: str
    reason: str = ""
    sqnr: float | None = None
    smaller: float | None = None


def recipes(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The variants that are recipes."""
    return {name: info for name, info in sorted(variants.items()) if info.get("rule")}


def spelt(name: str, info: Mapping[str, Any]) -> list[str]:
    """A recipe with each choice of its first word, or unchanged if it has none."""
    words = [Word.of(word) for word in info.get("words", ())]
    return [f"{name}-{value}" for value in words[0].values] if words and words[0].values else [name]


def probe(names: Sequence[str], device: str, dtype: str, files: Sequence[str] = (), watch: RunWatch | None = None) -> list[RecipeTrial]:
    """Try every recipe once, with progress to `watch`; the runs are not kept."""
    axes = {**{key: (value,) for key, value in SIZE.items()}, "dtype": (dtype,)}
    matrices = [Matrix((WORKLOAD,), axes, ("torch",), (name,), (_mode(name),), (device,)) for name in names]
    settings = Settings(budget=0.01, telemetry=False)
    with tempfile.TemporaryDirectory() as folder:
        ready = conduct.from_experiment(Experiment("recipes", files=tuple(files), matrix=tuple(matrices), settings=settings))
        done = conduct.execute(ready, Store(Path(folder) / "store"), ["list", "recipes"], lambda writer: watch or NoWatch())
        return [_trial(record) for record in done.run.records]


def _mode(name: str) -> str:
    """The mode to try a recipe in: training if it is only for training, else eval."""
    found = find_named(name, registry.built_ins().variants)
    return "train" if found and found[0].modes and "eval" not in found[0].modes else "eval"


def _trial(record: Record) -> RecipeTrial:
    sqnr, before, after = record.metrics.get("sqnr"), record.effective.get("bytes_before"), record.effective.get("bytes_after")
    smaller = before / after if isinstance(before, (int, float)) and isinstance(after, (int, float)) and after else None
    return RecipeTrial(str(record.case["variant"]), record.status, record.reason, sqnr.value if sqnr else None, smaller)
