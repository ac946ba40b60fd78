"""Other systems' config files as experiments, each read by the dialect that recognises it by its content."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine.place import Place
from steelyard.engine.plan import Entries
from steelyard.model.experiment import Experiment


def reader(path: Path) -> Any:
    """The part of a dialect that reads this file; None for one that no dialect knows."""
    for dialect in registry.dialects():
        if dialect.config and (part := importlib.import_module(dialect.config)).recognise(path):
            return part
    return None


def load(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> Experiment | None:
    """The experiment of a config in a known dialect; None for a file that is none."""
    found = reader(path)
    made: Experiment | None = found.read(path, files, place, device) if found else None
    return made


def packages(path: Path) -> Entries:
    """Installed operators, iterators and generators that a config names: naming them is what loads their packages."""
    found = reader(path)
    return tuple(found.packages(path)) if found else ()
