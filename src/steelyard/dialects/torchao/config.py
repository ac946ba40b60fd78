"""A TorchAO config as an experiment: a row for each recipe and shape, with its cases and pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.codec.parsing import parse
from steelyard.dialects.torchao import layers, reading
from steelyard.dialects.torchao.layers import LayerRow
from steelyard.dialects.torchao.shapes import LayerShape
from steelyard.engine import names
from steelyard.engine.describe import describe
from steelyard.engine.place import Place
from steelyard.engine.sides import here
from steelyard.errors import Mistakes, UsageError, told, unknown
from steelyard.files import read_text
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment
from steelyard.model.words import find_named
from steelyard.registry import Catalogue
from steelyard.terminal import tell
from steelyard.workloads.torchao import ACTIVATIONS

kind = "TorchAO config"
NO_SHAPE = LayerShape("", 0, 0, 0)


def recognise(path: Path) -> bool:
    """Whether a file has the keys of a TorchAO config; a file that is not YAML is left to a reader that reports the mistake."""
    try:
        text = read_text(path) if path.suffix.lower() in (".yml", ".yaml") else ""
        return (reading.MODELS in text or "_recipe_names" in text) and reading.recognise(parse(text, str(path), "yaml", aliases=True))
    except UsageError:
        return False


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "") -> Experiment:
    """Read a config strictly and return its experiment; a `device` from the command line is for all rows."""
    found, _ = reading.read_rows(path, device=device)
    rows = checked(found, catalogue(files, place))
    mistakes = [UsageError(text, where=str(path)) for text in dict.fromkeys(text for row in rows for text in row.trouble.splitlines())]
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else Mistakes(mistakes, where=str(path))
    for note in dict.fromkeys(f"{path}  {row.place}: {row.note}" for row in rows if row.note):
        tell(f"warning: {note}")
    return Experiment(str(path), files=files, rows=tuple(row.result_row for row in rows))


def catalogue(files: tuple[str, ...], place: Place | None = None) -> Catalogue:
    """Return all known names, including those in the user's files."""
    found = registry.catalogue()
    return found.extend(describe(place or here(None, Place(), files), files, ()), ", ".join(files)) if files else found


def checked(rows: Iterable[LayerRow], known: Catalogue) -> list[LayerRow]:
    """Return the rows with their workloads' axes and a key each; an unknown name is in the `trouble` of its row.

    Rows that differ only in sizes that the workload does not take are merged. Each name is looked up once.
    """
    seen: dict[tuple[str, ...], str] = {}
    found: dict[tuple[Any, ...], LayerRow] = {}
    for number, (_, alike) in enumerate(groupby(rows, lambda row: replace(row, name="", shape=NO_SHAPE))):
        for row in alike:
            built = _built(row, known)
            key = (row.model_type, row.recipe, row.mode, str(row.use_compile))
            if key not in seen:
                seen[key] = _trouble(built, known)
            spot = (number, *built.sizes.values()) if built.note else ("row", len(found))
            found.setdefault(spot, replace(built, trouble=row.trouble or seen[key]))
    return layers.with_keys(found.values())


def _built(row: LayerRow, known: Catalogue) -> LayerRow:
    """Return a row with the backend and the axes of its workload."""
    info = known.workloads.get(row.workload)
    if not info or "axes" not in info:
        return row
    axes = {axis: values[0] for axis, values in info["axes"].items()}
    made = replace(row, axes=tuple(axes.items()), backend=next(iter(info["backends"]), row.backend))
    if unused := [axis for axis in row.asked if axis not in axes]:
        taken = ", ".join(f"{axis}={value}" for axis, value in made.params.items())
        made = replace(made, note=f"{row.workload} has no {', '.join(unused)}: it runs with {taken}")
    return replace(made, name=layers.default_name(made)) if row.name == layers.default_name(row) else made


def _trouble(row: LayerRow, known: Catalogue) -> str:
    """Return what is wrong with the names in a row, each with its key in the config; empty if all are known."""
    found: list[str] = []
    try:
        activation = row.params.get("activation") if row.workload == f"{layers.HOME}{layers.NORMED}" else None
        if activation is not None and activation not in ACTIVATIONS:
            raise unknown("activation", str(activation), ACTIVATIONS)
        names.settle(Case(row.workload, tuple(row.params.items()), row.backend), known)
    except UsageError as error:
        found.append(f"{row.place}.model_type: {told(error)}")
    try:
        own = known.workloads.get(row.workload, {}).get("variants", {})
        for name in () if row.quantization.startswith(layers.BASELINE) else row.quantization.split("+"):
            named = find_named(name.partition("[")[0], own, known.variants)
            if named is None or not named[0].get("rule", True):
                recipes = [name for table in (known.variants, own) for name, item in table.items() if item.get("rule")]
                raise unknown("recipe", row.quantization, [layers.BASELINE, *recipes], listing="steelyard list recipes")
        for case in () if found else row.cases.values():
            names.settle(case, known)
    except UsageError as error:
        found.append(f"{reading.QUANTIZATION}: {told(error)}")
    return "\n".join(found)
