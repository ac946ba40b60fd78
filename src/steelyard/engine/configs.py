"""Other systems' config files as experiments, each read by the dialect that recognises it by its content."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.codec import parsing
from steelyard.codec.experiments import FORMS
from steelyard.engine.place import Place
from steelyard.engine.plan import Entries
from steelyard.errors import UsageError
from steelyard.model.dialect import Dialect
from steelyard.model.experiment import Experiment


def recognise(path: Path) -> tuple[Dialect, Any] | None:
    """Return the dialect that a file is written in, with its module that reads configs; None if no dialect recognises the file."""
    for dialect in registry.dialects():
        if dialect.config and (part := importlib.import_module(dialect.config)).recognise(path):
            return dialect, part
    return None


def reader(path: Path) -> Any:
    """Return the module of the dialect that reads this file; None if no dialect recognises it."""
    found = recognise(path)
    return found[1] if found else None


def converted(path: Path, files: tuple[str, ...] = ()) -> tuple[Experiment, str, Callable[[Experiment], Experiment]]:
    """Return the experiment of a config, the name of the file's kind, and the dialect's function that tidies it for writing."""
    found = recognise(path)
    if found is None:
        parsing.load(path, FORMS.get(path.suffix.lower(), "json"))
        kinds = [f"{importlib.import_module(dialect.config).kind}s" for dialect in registry.dialects() if dialect.config]
        why = f"only {', '.join(kinds)} can be converted"
        raise UsageError(f"the kind of {path} is unknown", why=why, do="see docs/howto")
    dialect, part = found
    tidy = importlib.import_module(dialect.convert).tidy if dialect.convert else lambda experiment: experiment
    return part.read(path, files), part.kind, tidy


def load(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "") -> Experiment | None:
    """Return the experiment of a config in a known dialect; None for any other file. Without `device`, the file's own is used."""
    found = reader(path)
    made: Experiment | None = found.read(path, files, place, **({"device": device} if device else {})) if found else None
    return made


def packages(path: Path) -> Entries:
    """Return the installed operators, iterators and generators that a config names; only their packages are loaded."""
    found = reader(path)
    return tuple(found.packages(path)) if hasattr(found, "packages") else ()
