"""Mistakes in definitions: wrong tags, names used twice, cases that no tool runs, artifacts that no exporter makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from steelyard.dialects.openxla.catalogue import DefinitionSet, tool_of
from steelyard.dialects.openxla.definitions import BenchmarkCase, Model
from steelyard.dialects.openxla.definitions import ModelFrameworkType as F
from steelyard.dialects.openxla.session import ToolOptions, case_of
from steelyard.dialects.openxla.templates import AXES
from steelyard.errors import UsageError, told, unknown
from steelyard.exporters.ways import chosen
from steelyard.model.dtypes import ALIASES, SIZES

EXPORTERS = {F.JAX: "jax", F.PYTORCH: "torch", F.TF_V1: "tensorflow", F.TF_V2: "tensorflow", F.TFLITE: "jax"}
"""The backend whose exporters make the programs of a framework's models."""
TYPES = ("fp32", "fp16", "bf16")
FORMATS = (*SIZES, "dyn-quant")
"""Valid data_types: a number format, or the original's word for weights that are quantized when they are used."""
TOLERANCES = ("absolute_tolerance", "relative_tolerance")
WORDS = {"JAX": (F.JAX,), "PT": (F.PYTORCH,), "TF": (F.TF_V1, F.TF_V2), "TFLITE": (F.TFLITE,)}
"""Parts of a model's name that stand for its framework."""


@dataclass(frozen=True)
class LintFinding:
    """One mistake: the definition's name, what is wrong, and whether it may be intended."""

    name: str
    what: str
    doubt: bool = False

    def __str__(self) -> str:
        return f"{'doubtful' if self.doubt else 'wrong'}  {self.name}: {self.what}"


def findings(held: DefinitionSet) -> list[LintFinding]:
    """Return all mistakes in a set of definitions, first the files that cannot be read."""
    found = [LintFinding(item.where, item.what) for item in held.troubles]
    for kind, names in (("model", [item.name for item in held.models]), ("case", [item.name for item in held.cases])):
        found += [LintFinding(name, f"{count} {kind}s have this name") for name, count in Counter(names).items() if count > 1]
    for model in held.models:
        found += _of_model(model)
    listed, tried = {item.name for item in held.models}, {item.model.name for item in held.cases}
    for case in held.cases:
        found += _of_case(case, listed)
    found += [LintFinding(name, "no case uses this model", doubt=True) for name in sorted(listed - tried)]
    return list(dict.fromkeys(found))


def _of_model(model: Model) -> Iterator[LintFinding]:
    given, kind, tags = model.model_parameters, model.model_impl.framework_type, [*model.model_impl.tags, *model.tags]
    for key, axis in AXES.items():
        told = {int(found[1]) for tag in tags if (found := re.fullmatch(rf"{axis.tag}-(\d{{1,9}})", tag))}
        named = {int(number) for number in re.findall(rf"{axis.suffix}(\d{{1,9}})(?:_|$)", model.name)}
        for what, values in (("tag", told), ("name", named)):
            if key in given and (wrong := values - {given[key]}):
                yield LintFinding(model.name, f"its {what} says {axis.tag} {min(wrong)}, but {key} is {given[key]}")
    data_type = given.get("data_type")
    for what, words in (("tag", tags), ("name", model.name.lower().split("_"))):
        if data_type in TYPES and (others := sorted({*words} & {*TYPES} - {data_type})):
            yield LintFinding(model.name, f"its {what} says {others[0]}, but data_type is {data_type}")
    for part in model.name.split("_"):
        if part in WORDS and kind not in WORDS[part]:
            yield LintFinding(model.name, f"its name says {part}, but its framework is {kind.name}")
    if not model.model_impl.module_path and kind is not F.TFLITE:
        yield LintFinding(model.name, f"its implementation {model.model_impl.name} has no module_path, so nothing can run it")
    made = {way.kind for way in chosen(EXPORTERS.get(kind, ""))}
    if never := [item.name for item in model.exported_model_types if item.value not in made]:
        yield LintFinding(model.name, f"it declares {', '.join(never)}, which no export of {kind.name} makes")
    if data_type is None:
        yield LintFinding(model.name, "it has no data_type, so results lack it", doubt=True)
    elif data_type not in FORMATS:
        yield _misnamed(model.name, "data_type", data_type, FORMATS)


def _misnamed(name: str, kind: str, word: object, known: Iterable[str]) -> LintFinding:
    error = unknown(kind, str(word), known, meant=ALIASES.get(str(word), ""))
    return LintFinding(name, "; ".join(filter(None, [error.what, error.do])))


def _of_case(case: BenchmarkCase, listed: set[str]) -> Iterator[LintFinding]:
    if case.name != (usual := f"models/{case.model.name}/inputs/{case.input_data.name}"):
        yield LintFinding(case.name, f"its model and input make the name {usual}")
    if case.model.name not in listed:
        yield LintFinding(case.name, f"its model {case.model.name} is not in ALL_MODELS")
    for key in case.verify_parameters.keys() - {*TOLERANCES}:
        yield _misnamed(case.name, "key of verify_parameters", key, TOLERANCES)
    if case.model.model_impl.module_path and tool_of(case):
        try:
            case_of(case, ToolOptions(tool_of(case), (), "host-cpu", Path()))
        except UsageError as error:
            yield LintFinding(case.name, told(error))
    if not tool_of(case) and case.model.model_impl.framework_type is not F.TFLITE:
        yield LintFinding(case.name, f"no tool runs models of {case.model.model_impl.framework_type.name}")
