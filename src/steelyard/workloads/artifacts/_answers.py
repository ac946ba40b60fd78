"""Saves the answers of backends to a program without recorded answers, so that they can be compared.

Each backend has its own process, often in another environment, so answers are compared through files in the user's cache: one for each
program with its inputs, seed and backend.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays

Arrays = list[np.ndarray[Any, Any]]
TRUSTED = ("interpreter", "xla", "iree", "litert", "onnxruntime")
"""Backends whose answers can be compared with, the most trusted first."""


def folder() -> Path:
    """Return the folder of saved answers."""
    if chosen := os.environ.get("STEELYARD_CACHE"):
        return Path(chosen) / "answers"
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "steelyard" / "answers"


def keep(key: str, backend: str, answer: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Save an answer as formats and arrays, atomically. If it cannot be saved, other backends are not compared with it."""
    place = folder() / key
    stored: dict[str, Any] = {f"{number:04d}-{dtype}": arrays.bits(dtype, data) for number, (dtype, data) in enumerate(answer)}
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, suffix=".part", delete=False) as file:
            np.savez(file, **stored)  # only bits in plain formats, as reading refuses everything else
        Path(file.name).replace(place / f"{backend}.npz")


def others(key: str, backend: str) -> Mapping[str, Path]:
    """Return the saved answers of other backends, the most trusted first."""
    found = {name: folder() / key / f"{name}.npz" for name in TRUSTED if name != backend}
    return {name: path for name, path in found.items() if path.is_file()}


def is_whole(path: Path) -> bool:
    """Whether a saved answer is undamaged. It is not parsed, because the conductor may lack a package for its formats."""
    try:
        with zipfile.ZipFile(path) as held:
            return held.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def read(path: Path) -> Arrays | None:
    """Return a saved answer; None if the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as held:
            return [arrays.viewed(held[name], name.partition("-")[2]) for name in sorted(held.files)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
