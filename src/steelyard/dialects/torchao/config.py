"""A TorchAO config as an experiment: a row for each recipe and shape, with its cases and pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from steelyard import registry
from steelyard.codec.parsing import parse
from steelyard.dialects.torchao import reading
from steelyard.dialects.torchao.layers import ACTIVATIONS, LayerRow
from steelyard.engine import names
from steelyard.engine.describe import describe
from steelyard.engine.place import Place
from steelyard.engine.sides import here
from steelyard.errors import Mistakes, UsageError, told, unknown
from steelyard.files import read_text
from steelyard.model.experiment import Experiment
from steelyard.registry import Catalogue

kind = "TorchAO config"
MODEL_TROUBLE = ("no workload", "no axis", "no activation", "not a workload")


def recognise(path: Path) -> bool:
    """By its keys; a file that is no YAML at all is left to whoever can say why."""
    try:
        text = read_text(path) if path.suffix.lower() in (".yml", ".yaml") else ""
        return (reading.MODELS in text or "_recipe_names" in text) and reading.recognise(parse(text, str(path), "yaml", aliases=True))
    except UsageError:
        return False


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> Experiment:
    """The experiment of a config, read strictly; a device of the command line other than the CPU is for all rows."""
    found, _ = reading.read_rows(path, device="" if device == "cpu" else device)
    rows = list(checked(found, catalogue(files, place)))
    mistakes = [UsageError(text, where=str(path)) for text in dict.fromkeys(row.trouble for row in rows if row.trouble)]
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else Mistakes(mistakes, where=str(path))
    return Experiment(str(path), files=files, rows=tuple(row.result_row for row in rows))


def catalogue(files: tuple[str, ...], place: Place | None = None) -> Catalogue:
    """All names there are, with those of the user's files."""
    found = registry.catalogue()
    return found.extend(describe(place or here(None, Place(), files), files, ()), ", ".join(files)) if files else found


def checked(rows: Iterable[LayerRow], known: Catalogue) -> Iterator[LayerRow]:
    """The rows on the backend that each layer is written for; one that names what nobody has says so. Each name is looked up once."""
    seen: dict[tuple[str, ...], tuple[str, str]] = {}
    for row in rows:
        key = (row.model_type, row.recipe, row.mode, str(row.use_compile))
        if key not in seen:
            info = known.workloads.get(f"torchao/{row.model_type}") or {}
            backend = next(iter(info.get("backends", ())), row.backend)
            seen[key] = backend, _trouble(replace(row, backend=backend), known)
        yield replace(row, backend=seen[key][0], trouble=row.trouble or seen[key][1])


def _trouble(row: LayerRow, known: Catalogue) -> str:
    try:
        for case in row.cases.values():
            activation = dict(case.params).get("activation", ACTIVATIONS[0])
            if activation not in ACTIVATIONS:
                raise unknown("activation", activation, ACTIVATIONS)
            names.settle(case, known)
    except UsageError as error:
        key = "model_type" if error.what.startswith(MODEL_TROUBLE) else reading.QUANTIZATION
        return f"{key}: {told(error)}"
    return ""
