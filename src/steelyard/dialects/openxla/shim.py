"""Users' definition files, read in a worker: every ALL_MODELS and ALL_BENCHMARKS below a folder, as plain data.

A file that cannot be imported costs its own definitions and no other's.
"""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.dialects.openxla import names
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model, ModelFrameworkType, ModelImplementation, ModelTestData

MODELS, CASES = "ALL_MODELS", "ALL_BENCHMARKS"
FILES = "*definitions.py"
THEIRS = ("openxla", "benchmark")


def definition_files(path: Path) -> list[Path]:
    """The files that may hold definitions: the one that is named, or all of that name below a folder."""
    return [path.resolve()] if path.is_file() else sorted(file.resolve() for file in path.rglob(FILES) if file.is_file())


def root_of(file: Path, top: Path) -> Path:
    """Where Python must look for a file's package: above `openxla`, above its outermost package, or the folder that was named."""
    parts = file.parent.parts
    for place in range(len(parts) - 1):
        if parts[place : place + 2] == THEIRS:
            return Path(*parts[:place])
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    within = folder == file.parent and not top.is_file() and folder.is_relative_to(top)
    return top if within else folder


def roots(path: Path) -> tuple[str, ...]:
    """The folders that a worker looks in for the modules of definitions and models."""
    top = path.resolve()
    return tuple(dict.fromkeys(str(root_of(file, top)) for file in definition_files(path)))


def perform(words: Mapping[str, Any], loaded: Any, send: Callable[[Mapping[str, Any]], None], gate: Callable[[], None]) -> None:
    """Answer with all definitions below a folder, and with what is wrong there."""
    send(found(Path(words["folder"])))


def found(path: Path) -> dict[str, Any]:
    """The same, as the worker has it."""
    names.serve()
    registry.look_first(roots(path))
    models: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    troubles: list[dict[str, str]] = []
    for file in definition_files(path):
        try:
            module = _imported(file, path.resolve())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            troubles.append({"where": f"{file}{_line(error, file)}", "what": f"{type(error).__name__}: {error}"[:500]})
            continue
        for held, kind, name in ((models, Model, MODELS), (cases, BenchmarkCase, CASES)):
            for item in _listed(getattr(module, name, ())):
                trouble = wrong(item, kind)
                if trouble:
                    told = getattr(item, "name", None)
                    troubles.append({"where": f"{file}  {name}", "what": trouble, "name": told if isinstance(told, str) else ""})
                else:
                    held.append(carried(item))
    return {"models": models, "cases": cases, "troubles": troubles}


def _imported(file: Path, top: Path) -> Any:
    """By its dotted name, so that files that import each other share their definitions; by its path where it can have none."""
    parts = file.relative_to(root_of(file, top)).with_suffix("").parts
    return importlib.import_module(".".join(parts)) if all(part.isidentifier() for part in parts) else registry.load_file(file)


def _line(error: BaseException, file: Path) -> str:
    """The line of the file itself that an error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f":{lines[-1]}" if lines else ""


def _listed(value: Any) -> list[Any]:
    """A list of definitions; a table of them has them as values."""
    return list(value.values() if isinstance(value, Mapping) else value) if isinstance(value, Iterable) else [value]


def wrong(item: Any, kind: type[Model] | type[BenchmarkCase]) -> str:
    """Why a definition cannot be used; types are what Python does not check."""
    if not isinstance(item, kind):
        return f"{item!r:.80} is no {kind.__name__}"
    model: Any = item.model if isinstance(item, BenchmarkCase) else item
    impl = getattr(model, "model_impl", None)
    fields: list[tuple[str, Any, type[Any]]] = [
        ("name", item.name, str), ("model", model, Model), ("model_impl", impl, ModelImplementation),
        ("framework_type", getattr(impl, "framework_type", None), ModelFrameworkType),
        ("tags", getattr(model, "tags", None), list), ("tags of model_impl", getattr(impl, "tags", None), list),
        ("model_parameters", getattr(model, "model_parameters", None), dict),
        *([("input_data", item.input_data, ModelTestData)] if isinstance(item, BenchmarkCase) else []),
    ]  # fmt: skip
    for field, value, wanted in fields:
        if not isinstance(value, wanted):
            return f"{item.name!s:.120}: {field} is {value!r:.80}, not a {wanted.__name__}"
    try:
        json.dumps(carried(item), allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"{item.name}: it holds what cannot be handed on ({error}): use text, numbers, lists and tables"
    return ""


def carried(item: Model | BenchmarkCase) -> dict[str, Any]:
    """A definition as JSON has it; `restored` is the way back."""
    return {key: _plain(value) for key, value in asdict(item).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value
