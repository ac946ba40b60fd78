"""Users' definition files, read in a worker: every ALL_MODELS and ALL_BENCHMARKS below a folder, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steelyard.dialects.openxla import names
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model
from steelyard.engine.packages import UserFolder, carried

KINDS: Mapping[str, type[Any]] = {"ALL_MODELS": Model, "ALL_BENCHMARKS": BenchmarkCase}
"""The lists of a file, and what is in each."""


def folder(path: Path) -> UserFolder:
    """A folder of definitions; forks of the original have them inside of its own package."""
    return UserFolder(path, "*definitions.py", ("openxla", "benchmark"))


def perform(words: Mapping[str, Any], loaded: Any, send: Callable[[Mapping[str, Any]], None], gate: Callable[[], None]) -> None:
    """Answer with all definitions below a folder by their lists, and with what is wrong there."""
    names.serve()
    said: dict[str, list[Any]] = {name: [] for name in KINDS}
    troubles: list[dict[str, str]] = []
    for item in folder(Path(words["folder"])).items(list(KINDS), lambda file: send({"importing": file})):
        if item.trouble:
            troubles.append({"where": item.file, "what": item.trouble})
            continue
        try:
            said[item.list].append([item.file, carried(item.value, KINDS[item.list])])
        except (TypeError, ValueError) as error:
            name = getattr(item.value, "name", "")
            troubles.append({"where": f"{item.file}  {item.list}", "what": str(error), "name": name if isinstance(name, str) else ""})
    send({**said, "troubles": troubles})
