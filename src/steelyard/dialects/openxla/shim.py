"""Users' definition files, read in a worker: every ALL_MODELS and ALL_BENCHMARKS below a folder, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steelyard.dialects.openxla import names
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model
from steelyard.engine import packages
from steelyard.engine.packages import UserFolder

MODELS, BENCHMARKS = "ALL_MODELS", "ALL_BENCHMARKS"
KINDS: Mapping[str, type[Any]] = {MODELS: Model, BENCHMARKS: BenchmarkCase}
"""The lists that a file may have, and the type of their items."""


def folder(path: Path) -> UserFolder:
    """Return a folder of definitions; forks of the original have them in the package openxla.benchmark."""
    return UserFolder(path, "*definitions.py", ("openxla", "benchmark"))


def perform(words: Mapping[str, Any], loaded: Any, send: Callable[[Mapping[str, Any]], None], gate: Callable[[], None]) -> None:
    """Send all definitions below a folder by their lists, with the mistakes found."""
    names.serve()
    packages.answer(folder(Path(words["folder"])), KINDS, words, send)
