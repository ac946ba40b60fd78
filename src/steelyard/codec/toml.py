"""Writing TOML, which the standard library only reads: experiment files made from something else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.experiment import Experiment, Matrix

_BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 120


def write_experiment(experiment: Experiment, comment: str = "") -> str:
    """The file that `load_experiment` reads as this experiment; only its name, description and matrices are written."""
    parts = [f"# {line}".rstrip() for line in comment.splitlines()]
    parts.append(f"name = {value(experiment.name)}")
    if experiment.description:
        parts.append(f"description = {value(experiment.description)}")
    return "\n".join(parts) + "\n" + "".join(f"\n{_matrix(matrix)}" for matrix in experiment.matrix)


def _matrix(matrix: Matrix) -> str:
    usual = Matrix(())
    lines = ["[[matrix]]", f"workload = {_values(matrix.workload)}"]
    for name in ("backend", "variant", "mode", "device", "threads", "ranks", "env", "flags"):
        found = getattr(matrix, name)
        if found != getattr(usual, name):
            lines.append(f"{name} = {_values(found)}")
    if matrix.axes:
        lines.append("[matrix.axes]")
        lines += [f"{key_of(name)} = {_values(values)}" for name, values in matrix.axes.items()]
    return "\n".join(lines) + "\n"


def _values(values: Sequence[Any]) -> str:
    """One value stands alone unless it is itself a list; several, or long ones, stand on a line each."""
    if len(values) == 1 and not isinstance(values[0], (list, tuple)):
        return value(values[0])
    line = value(list(values))
    if len(line) <= WIDTH:
        return line
    return "[\n" + "".join(f"    {value(item)},\n" for item in values) + "]"


def value(item: Any) -> str:
    """A value in one line; TOML has no null."""
    if item is None:
        raise UsageError("TOML has no null", do="write the experiment as JSON: -o FILE.json")
    if isinstance(item, (bool, str)):
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(item, (int, float)):
        return repr(item)
    if isinstance(item, Mapping):
        return "{" + ", ".join(f"{key_of(str(name))} = {value(part)}" for name, part in item.items()) + "}"
    return "[" + ", ".join(value(part) for part in item) + "]"


def key_of(name: str) -> str:
    """A key, quoted where it must be."""
    return name if _BARE.fullmatch(name) else value(name)
