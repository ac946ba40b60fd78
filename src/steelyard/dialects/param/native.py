"""A PARAM config as an experiment of ours: every config is a case of one workload, with its id as a label beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from steelyard.dialects.param.expand import DEFAULT_GENERATOR, Config, Sheet
from steelyard.dialects.param.grammar import NOTES
from steelyard.model.experiment import Experiment, Matrix

WORKLOAD = "call/torch"


def experiment(sheet: Sheet) -> Experiment:
    """One matrix per config, so that what is asked on the command line applies to each; mistakes stand beside those that can run."""
    matrices = tuple(Matrix((WORKLOAD,), axes(config), origin=_origin(sheet, config), label=config.full_id) for config in sheet.configs)
    return Experiment(sheet.source, matrix=matrices, mistakes=tuple(map(str, sheet.mistakes)))


def axes(config: Config) -> dict[str, tuple[Any, ...]]:
    """The parameters of a config's case; what is usual is left to the workload."""
    build, input = map(_with_generator, map(_bare, (config.build, config.input)), config.generators)
    asked = {"build": build, "seed": config.seed}
    return {"op": (config.op,), **{key: (value,) for key, value in asked.items() if value is not None}, "input": (input,)}


def _bare(value: Any) -> Any:
    """A spec without its remarks: what is said about an argument is no part of what is measured."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    remarks = NOTES if "type" in value else ()
    return {key: _bare(item) for key, item in value.items() if key not in remarks}


def _with_generator(spec: Any, name: str) -> Any:
    """A spec whose arguments another than the default generator makes names it."""
    return {**spec, "generator": name} if isinstance(spec, dict) and name not in ("", DEFAULT_GENERATOR) else spec


def _origin(sheet: Sheet, config: Config) -> str:
    return f"{sheet.source}  {config.path}"


def gathered(sheet: Sheet) -> Experiment:
    """The same with neighbours that differ in their input alone under one matrix, as a person would write it in a file."""
    return replace(experiment(sheet), matrix=tuple(_gathered(sheet)))


def _gathered(sheet: Sheet) -> Iterator[Matrix]:
    def rest(config: Config) -> dict[str, Any]:
        return {key: value for key, value in axes(config).items() if key != "input"}

    for shared, members in groupby(sheet.configs, rest):
        inputs = tuple(axes(config)["input"][0] for config in members)
        yield Matrix((WORKLOAD,), {**shared, "input": inputs})
