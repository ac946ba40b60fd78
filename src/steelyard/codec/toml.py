"""Write TOML, which the standard library only reads: experiment files made from other files.

tomli-w could write them, but it spreads every shape and every argument of a call over separate lines and tables, which is hard to read.
Here a value is on one line, and a long list has a line for each of its values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.experiment import Experiment, Matrix, Settings

_BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 120


def write_experiment(experiment: Experiment, comment: str = "") -> str:
    """The text that `load_experiment` reads as this experiment, without its rules; rows become their cases and pairs."""
    parts = [f"# {line}".rstrip() for line in comment.splitlines()]
    parts.append(f"name = {value(experiment.name)}")
    if experiment.description:
        parts.append(f"description = {value(experiment.description)}")
    if experiment.recorded is not None:
        parts.append(f"recorded = {value(experiment.recorded)}")
    parts += [f"{name} = {_lines(items)}" for name, items in listed(experiment).items()]
    if settings := settings_of(experiment):
        parts += ["", "[settings]", *(f"{name} = {value(item)}" for name, item in settings.items())]
    return "\n".join(parts) + "\n" + "".join(f"\n{_matrix(matrix)}" for matrix in experiment.matrix)


def plain_experiment(experiment: Experiment) -> dict[str, Any]:
    """The same as plain data for JSON."""
    settings = settings_of(experiment)
    matrices = [{"workload": one.workload, **how(one), "axes": one.axes} for one in experiment.matrix]
    matrices = [{**one, "weight": one["weight"][0]} if "weight" in one else one for one in matrices]
    recorded = {} if experiment.recorded is None else {"recorded": experiment.recorded}
    found = {"name": experiment.name, **recorded, **listed(experiment), **({"settings": settings} if settings else {})}
    return found | ({"matrix": matrices} if matrices else {})


def listed(experiment: Experiment) -> dict[str, list[Any]]:
    """The cases and pairs that are listed individually, by their ids."""
    cases = [*experiment.include, *(case for row in experiment.rows for case in row.cases)]
    pairs = [*experiment.pairs, *(pair for row in experiment.rows for pair in row.pairs)]
    found: dict[str, list[Any]] = {
        "include": [*dict.fromkeys(map(str, cases))],
        "pairs": [[str(head), str(base)] for head, base in dict.fromkeys(pairs)],
    }
    return {name: items for name, items in found.items() if items}


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """The settings that differ from the defaults; a fixed protocol's labels for tools and traces are not written."""
    usual, found = Settings(), experiment.settings
    settings = {item.name: getattr(found, item.name) for item in fields(Settings)}
    asked = {name: item for name, item in settings.items() if item != getattr(usual, name)}
    if found.fixed:
        asked["fixed"] = {name: item for name, item in found.fixed.plain().items() if name not in ("ranges", "traced")}
    return asked


def how(matrix: Matrix) -> dict[str, Any]:
    """How and where the cases of a matrix run, without defaults."""
    usual = Matrix(())
    names = ("backend", "variant", "mode", "device", "threads", "ranks", "env", "flags")
    asked = {name: found for name in names if (found := getattr(matrix, name)) != getattr(usual, name)}
    return {**asked, "weight": (matrix.weight,)} if matrix.weight else asked


def _matrix(matrix: Matrix) -> str:
    lines = ["[[matrix]]", f"workload = {_values(matrix.workload)}"]
    lines += [f"{name} = {_values(found)}" for name, found in how(matrix).items()]
    if matrix.axes:
        lines.append("[matrix.axes]")
        lines += [f"{key_of(name)} = {_values(values)}" for name, values in matrix.axes.items()]
    return "\n".join(lines) + "\n"


def _values(values: Sequence[Any]) -> str:
    """Values as TOML: a single value without a list unless it is a list itself; several, if long, on a line each."""
    if len(values) == 1 and not isinstance(values[0], (list, tuple)):
        return value(values[0])
    return _lines(values)


def _lines(values: Sequence[Any]) -> str:
    """A list on one line, or with a line for each value if that is too long."""
    line = value(list(values))
    if len(line) <= WIDTH:
        return line
    return "[\n" + "".join(f"    {value(item)},\n" for item in values) + "]"


def value(item: Any) -> str:
    """A value on one line; raise for null, which TOML lacks."""
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
    """A key, quoted if necessary."""
    return name if _BARE.fullmatch(name) else value(name)
