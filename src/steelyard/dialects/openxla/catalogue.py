"""All known definitions, from the suite or from folders that a user names, and the choice of cases by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steelyard.dialects.openxla import shim, suite
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model
from steelyard.engine.describe import listed
from steelyard.engine.filters import fitting
from steelyard.engine.packages import ListTrouble
from steelyard.engine.place import Place
from steelyard.errors import UsageError


@dataclass(frozen=True)
class DefinitionSet:
    """Models, benchmark cases, and definitions that cannot be used, with reasons; `paths` are the folders of the models' modules."""

    models: tuple[Model, ...] = ()
    cases: tuple[BenchmarkCase, ...] = ()
    troubles: tuple[ListTrouble, ...] = ()
    paths: tuple[str, ...] = ()

    def __add__(self, other: DefinitionSet) -> DefinitionSet:
        paths = tuple(dict.fromkeys(self.paths + other.paths))
        return DefinitionSet(self.models + other.models, self.cases + other.cases, self.troubles + other.troubles, paths)


def of_suite(preset: str = "") -> DefinitionSet:
    """Return the suite's own definitions, in the sizes of a preset if one is named."""
    held = DefinitionSet(tuple(suite.ALL_MODELS), tuple(suite.ALL_BENCHMARKS))
    return sized(held, preset) if preset else held


def sized(held: DefinitionSet, preset: str) -> DefinitionSet:
    """Return the same definitions with the parameter `preset` in every model."""

    def other(model: Model) -> Model:
        return replace(model, model_parameters={**model.model_parameters, "preset": preset})

    cases = tuple(replace(case, model=other(case.model)) for case in held.cases)
    return replace(held, models=tuple(map(other, held.models)), cases=cases)


def of_folder(path: Path, place: Place | None = None) -> DefinitionSet:
    """Return the definitions in a folder or file that the user named; its Python code runs in a worker."""
    if not path.exists():
        raise UsageError(f"there is no {path}", do="name the folder or the file of your definitions")
    folder = shim.folder(path)
    if not folder.files:
        do = f"write {' and '.join(shim.KINDS)} in files such as model_definitions.py and benchmark_definitions.py, or name the file"
        raise UsageError(f"no definitions in {path}", why=f"no file in it is named {folder.pattern}", do=do)
    held, troubles = listed(replace(place or Place(), paths=folder.roots), folder, shim.__name__, shim.KINDS)
    return DefinitionSet(tuple(held[shim.MODELS]), tuple(held[shim.BENCHMARKS]), tuple(troubles), folder.roots)


def gathered(folders: Sequence[Path], preset: str = "", place: Place | None = None) -> DefinitionSet:
    """Return the definitions in the folders that a command names, or those of the suite if it names none."""
    return sum((of_folder(path, place) for path in folders), DefinitionSet()) if folders else of_suite(preset)


def tool_of(case: BenchmarkCase) -> str:
    """Return the tool that runs a case at framework level, or an empty text if none does."""
    return next((tool for tool, kinds in suite.FRAMEWORKS.items() if case.model.model_impl.framework_type in kinds), "")


def choose(held: DefinitionSet, tool: str, patterns: Sequence[str]) -> DefinitionSet:
    """Return a tool's cases whose whole name matches a pattern, each once, and the broken definitions that match one.

    A pattern that matches nothing is an error that lists all names. Different cases with one name are errors: results would mix them up.
    """
    known = {case.name: case for case in held.cases if tool_of(case) == tool}
    broken = {item.name: item for item in held.troubles if item.list == shim.BENCHMARKS}
    for name in [case.name for case in held.cases if case != known.get(case.name, case) and tool_of(case) == tool]:
        broken[name] = ListTrouble(shim.BENCHMARKS, "several cases have this name, and they differ; give each its own", name)
    meant = {*fitting(patterns, [*known, *broken], f"benchmark of {tool}")}
    cases = tuple(case for name, case in known.items() if name in meant and name not in broken)
    return replace(held, cases=cases, troubles=tuple(item for name, item in broken.items() if name in meant))
