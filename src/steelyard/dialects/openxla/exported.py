"""`make-artifacts`: the engine's exporters write the suite's models as programs, in the original's folders."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from steelyard import registry
from steelyard.artifacts import remote
from steelyard.dialects.openxla import catalogue
from steelyard.dialects.openxla.definitions import BenchmarkCase
from steelyard.dialects.openxla.session import BACKENDS, ToolOptions, case_of
from steelyard.engine import envs, exporting, plan
from steelyard.engine.exporting import ExportOutcome, ExportTarget
from steelyard.engine.filters import fitting
from steelyard.engine.place import Place
from steelyard.errors import UsageError
from steelyard.exporters.ways import OF, chosen
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow, Settings

FRAMEWORKS = {"jax": ("jax", "jax"), "pytorch": ("pt", "torch-mlir"), "tensorflow": ("tf", "tensorflow-cpu"), "tflite": ("tflite", "")}
"""The framework's name in the names of the original's folders, and the package whose version is in them."""
VERSIONS, UPLOAD, TEXT = "models_version_info.txt", "GCS_UPLOAD_DIR", "stablehlo_mlir:text"


@dataclass(frozen=True)
class ModelExport(ToolOptions):
    """Options of `make-artifacts`. With `bytecode`, StableHLO is written only as bytecode; `upload` is the address for the folders."""

    names: tuple[str, ...] = (".*",)
    device: str = "host-cpu"
    output: Path = Path()
    bytecode: bool = False
    upload: str = ""
    only: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        """The environment in which models are built."""
        return envs.place(self.env) if self.env else envs.place_for(BACKENDS[self.tool], Place())


def folder_of(asked: ModelExport) -> Path:
    """Return the named folder, or a new one named by framework, version and time."""
    if asked.output != Path():
        return asked.output
    word, package = FRAMEWORKS[asked.tool]
    found = {**envs.installed(asked.place.python), **{name: item for env in envs.listing() for name, item in env.packages.items()}}
    version = [found[package]] if package in found else []
    return Path(tempfile.gettempdir()) / "_".join([word, "models", *version, str(int(datetime.now(UTC).timestamp()))])


def make(asked: ModelExport, say: Callable[[str, str], None], tell: Callable[[str], None]) -> tuple[Path, list[ExportOutcome]]:
    """Export every model whose name matches a filter into a folder of that name; `tell` gets lines about each model once it is done."""
    held = catalogue.gathered(asked.definitions, asked.preset, asked.place)
    wanted = _chosen(asked, held)
    rows = [ResultRow(name, (case,)) for name, (case, _) in wanted.items()]
    experiment = Experiment(f"openxla {asked.tool} artifacts", rows=tuple(rows), settings=Settings(timeout=asked.timeout))
    ready = plan.expand(experiment, registry.catalogue(), place=replace(asked.place if asked.env else Place(), paths=held.paths))
    jobs = {job.case.id: job for job in ready.jobs}
    targets = [ExportTarget(name, jobs[case.id], only) for name, (case, only) in wanted.items()]
    out, found = folder_of(asked), list[ExportOutcome]()
    for outcome in exporting.make(targets, ready, out, say, asked.timeout):
        found.append(outcome)
        for line in exporting.told_outcome(outcome):
            tell(line)
        if asked.upload and outcome.held is not None:
            remote.publish([outcome.folder], f"{asked.upload.rstrip('/')}/{out.name}", functools.partial(say, outcome.name))
            shutil.rmtree(outcome.folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / VERSIONS).write_text(envs.pip_list(asked.place.python), encoding="utf-8")
    return out, found


def _chosen(asked: ModelExport, held: catalogue.DefinitionSet) -> dict[str, tuple[Case, tuple[str, ...]]]:
    """Return the cases by model name, each with the programs to export."""
    known = {case.model.name: case for case in held.cases}
    ours = [name for name, case in known.items() if (catalogue.tool_of(case) or case.model.model_impl.framework_type.value) == asked.tool]
    return {name: _wanted(known[name], known, asked) for name in fitting(asked.names, ours, f"model of {asked.tool}")}


def _wanted(case: BenchmarkCase, known: Mapping[str, BenchmarkCase], asked: ModelExport) -> tuple[Case, tuple[str, ...]]:
    """Return a model's case and the programs to export; a TFLite model is exported from the JAX model, with its own tolerance."""
    given, only = case.model.model_parameters, asked.only
    if asked.tool == "tflite":
        if given.get("model") not in known:
            raise UsageError(f"{case.model.name} is made from {given.get('model')!r:.80}", why="no model has that name")
        kind = str(given.get("artifact", ""))
        only = only or (kind, f"tosa_mlir:bytecode{OF}{kind}:flatbuffer")
        case = replace(known[str(given["model"])], verify_parameters=case.verify_parameters)
    keys = tuple(way.word for way in chosen(BACKENDS[asked.tool], only) if not (asked.bytecode and way.key == TEXT))
    return case_of(case, asked), keys
