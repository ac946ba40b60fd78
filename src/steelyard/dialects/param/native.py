"""Convert a PARAM config to our experiment: every config is a case of one workload, with its id as label."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from steelyard.dialects.param.expand import DEFAULT_GENERATOR, Config, Sheet
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.grammar import NOTES
from steelyard.model.case import Case, sorted_pairs
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.protocol import Clock, Fixed
from steelyard.model.units import number_of
from steelyard.model.units import plain as quantity
from steelyard.traces.calls import UniqueCall

WORKLOAD = "call/torch"
CLOCKS: dict[str, Clock] = {"discrete": "discrete", "continuous": "continuous", "continuous_events": "events"}
NO_LIMIT = 1e8
"""Seconds that a config may take if no limit is set: three years."""


def experiment(sheet: Sheet) -> Experiment:
    """Return one matrix per config, so that command-line options apply to each, with the mistakes beside them."""
    matrices = tuple(Matrix((WORKLOAD,), axes(config), origin=_origin(sheet, config), label=config.full_id) for config in sheet.configs)
    return Experiment(sheet.source, matrix=matrices, mistakes=tuple(map(str, sheet.mistakes)))


def asked(sheet: Sheet, configs: Sequence[Config], options: Options, files: Sequence[str]) -> Experiment:
    """Return the configs as `as param` runs them: a fixed number of bare calls, and one worker for all."""
    device, variant, threads = (options.device.partition(":")[0],), (_variant(options),), (options.threads,)
    matrices = tuple(
        Matrix(
            (WORKLOAD,), axes(config, options.seed), variant=variant, mode=("call",), device=device, threads=threads,
            origin=_origin(sheet, config), label=config.full_id,
        )
        for config in configs
    )  # fmt: skip
    return Experiment(sheet.source, files=tuple(files), matrix=matrices, settings=settings(options))


def settings(options: Options) -> Settings:
    """Return how calls are timed, monitored and isolated."""
    limit = options.timeout or NO_LIMIT
    return Settings(fixed=protocol(options), verify=False, telemetry=False, isolate="none", timeout=limit)


def case_of(config: Config, options: Options) -> Case:
    """Return the case of one config, for a process that runs it itself."""
    params = {"build": None, **{key: value for key, (value,) in axes(config, options.seed).items()}}
    device = options.device.partition(":")[0]
    return Case(WORKLOAD, sorted_pairs(params), "torch", _variant(options), "call", device, options.threads)


def _variant(options: Options) -> str:
    steps = [*(["compile[dynamic=false]"] if options.pt2_model else []), *(["cuda_graph"] if options.cuda_graph else [])]
    return "+".join(steps) or "eager"


def protocol(options: Options) -> Fixed:
    """Return our protocol for timing the calls."""
    flush = options.cuda_l2_cache == "off" and options.on_cuda and options.exec_mode == "discrete"
    return Fixed(
        options.warmup, options.iteration, CLOCKS[options.exec_mode], options.backward, 1 if options.pt2_model else 0, flush,
        "param", options.profile or options.et,
    )  # fmt: skip


def axes(config: Config, seed: int | None = None) -> dict[str, tuple[Any, ...]]:
    """The parameters of a config's case; defaults are left to the workload, and `seed` is for a config without one."""
    build, input = map(_with_generator, map(_bare, (config.build, config.input)), config.generators)
    asked = {"build": build, "seed": seed if config.seed is None else config.seed}
    return {"op": (config.op,), **{key: (value,) for key, value in asked.items() if value is not None}, "input": (input,)}


def _bare(value: Any) -> Any:
    """Return a spec without its remarks, which do not affect what is measured."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    remarks = NOTES if "type" in value else ()
    return {key: _bare(item) for key, item in value.items() if key not in remarks}


def _with_generator(spec: Any, name: str) -> Any:
    """Add the generator's name to a spec, unless it is the default one."""
    return {**spec, "generator": name} if isinstance(spec, dict) and name not in ("", DEFAULT_GENERATOR) else spec


def _origin(sheet: Sheet, config: Config) -> str:
    return f"{sheet.source}  {config.path}"


def tidy(experiment: Experiment) -> Experiment:
    """Merge neighbouring matrices that differ only in their input, as a person would write them in a file."""
    return replace(experiment, matrix=tuple(_gathered(experiment.matrix)))


def _gathered(matrices: Sequence[Matrix]) -> Iterator[Matrix]:
    def rest(matrix: Matrix) -> dict[str, Any]:
        return {key: values for key, values in matrix.axes.items() if key != "input"}

    for shared, members in groupby(matrices, rest):
        yield Matrix((WORKLOAD,), {**shared, "input": tuple(value for matrix in members for value in matrix.axes["input"])})


def of_trace(calls: Sequence[UniqueCall]) -> str:
    """A config of the calls of a recorded step, by operator; a remark at the first argument says how often a call was made."""
    found: dict[str, Any] = {}
    for call in calls:
        assert call.spec is not None
        entry = found.setdefault(call.op, {"input_data_generator": DEFAULT_GENERATOR, "config": [{"input": []}]})
        spec = {**call.spec, "args": list(call.spec["args"])}
        if spec["args"]:
            times = "" if call.recorded is None else f", {quantity(call.recorded, 's')} recorded"
            spec["args"][0] = {**spec["args"][0], "comment": f"{number_of(call.count, 'call')} in the step{times}"}
        entry["config"][0]["input"].append(spec)
    return json.dumps(found, indent=1) + "\n"
