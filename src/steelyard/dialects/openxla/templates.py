"""Many models from one template: names, tags, addresses and parameters have placeholders for sizes, along one axis or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any

from steelyard.dialects.openxla.definitions import (
    INPUT_DATA_MODEL_DEFAULT,
    BenchmarkCase,
    Model,
    ModelArtifactType,
    ModelImplementation,
    ModelTestData,
)
from steelyard.model.templates import Axis, fill, points
from steelyard.model.templates import TemplateFunc as TemplateFunc

MODELS_MODULE_PATH = "openxla.benchmark.models"


@dataclass(frozen=True)
class ModelTemplate:
    """A Model whose name and address are templates, and whose tags and parameters may contain templates."""

    name: Template
    tags: list[str | Template]
    model_impl: ModelImplementation
    model_parameters: dict[str, Any]
    artifacts_dir_url: Template | None = None
    exported_model_types: list[ModelArtifactType] = field(default_factory=list)


BATCH, GEN, SEQ_LEN = Axis("batch_size", "_BATCH", "batch"), Axis("gen_size", "_GEN", "gen"), Axis("seq_len", "_SEQLEN", "seqlen")
AXES = {axis.key: axis for axis in (BATCH, GEN, SEQ_LEN)}

BATCH_NAME, BATCH_TAG, BATCH_SIZE_PARAM = BATCH.name, BATCH.tagged, BATCH.value
GEN_NAME, GEN_TAG, GEN_SIZE_PARAM = GEN.name, GEN.tagged, GEN.value
SEQ_LEN_NAME, SEQ_LEN_TAG, SEQ_LEN_PARAM = SEQ_LEN.name, SEQ_LEN.tagged, SEQ_LEN.value


def axes_name(name: str, axes: Iterable[str]) -> Template:
    """Return a template of a model's name, followed by the size on each axis."""
    return Template(name + "".join(f"{AXES[key].suffix}${{{key}}}" for key in axes))


def build_models(template: ModelTemplate, axes: Mapping[str, Sequence[Any]]) -> dict[tuple[Any, ...], Model]:
    """Return a model for each point of several axes, by its values; except in the name, `${name}` stands for the model's name."""
    return {tuple(sizes.values()): _filled(template, sizes) for sizes in points(axes)}


def _filled(template: ModelTemplate, sizes: dict[str, Any]) -> Model:
    name = fill(template.name, **sizes)
    tags, parameters, url = (fill(part, name, **sizes) for part in (template.tags, template.model_parameters, template.artifacts_dir_url))
    return Model(name, tags, template.model_impl, parameters, url, list(template.exported_model_types))


def build_cases(
    models: Mapping[Any, Model], verify_parameters: dict[str, Any] | None = None, input_data: ModelTestData = INPUT_DATA_MODEL_DEFAULT,
    keys: Iterable[Any] | None = None,
) -> dict[Any, BenchmarkCase]:  # fmt: skip
    """Return a case for each of these models, or for those with the given keys, all with the same input and tolerances."""
    return {key: BenchmarkCase.build(models[key], input_data, verify_parameters) for key in (models if keys is None else keys)}


def _alone(models: Mapping[tuple[Any, ...], Model]) -> dict[Any, Model]:
    """Return models of a single axis by its value."""
    return {key: model for (key,), model in models.items()}


def build_batch_models(template: ModelTemplate, batch_sizes: Sequence[int]) -> dict[int, Model]:
    """Return models by batch size."""
    return _alone(build_models(template, {BATCH.key: batch_sizes}))


def build_gen_models(template: ModelTemplate, gen_sizes: Sequence[int]) -> dict[int, Model]:
    """Return models by the number of tokens that they generate."""
    return _alone(build_models(template, {GEN.key: gen_sizes}))


def build_input_sequence_models(template: ModelTemplate, input_sequence_lengths: Sequence[int]) -> dict[int, Model]:
    """Return models by the length of their input."""
    return _alone(build_models(template, {SEQ_LEN.key: input_sequence_lengths}))


Verify = dict[str, Any] | None
Cases = dict[int, BenchmarkCase]


def build_batch_benchmark_cases(batch_models: Mapping[int, Model], batch_sizes: Sequence[int], verify_parameters: Verify = None) -> Cases:
    """Return cases by batch size."""
    return build_cases(batch_models, verify_parameters, keys=batch_sizes)


def build_gen_benchmark_cases(model_dict: Mapping[int, Model], gen_sizes: Sequence[int], verify_parameters: Verify = None) -> Cases:
    """Return cases by the number of generated tokens."""
    return build_cases(model_dict, verify_parameters, keys=gen_sizes)


def build_input_sequence_benchmark_cases(
    model_dict: Mapping[int, Model], input_sequence_lengths: Sequence[int], verify_parameters: Verify = None
) -> Cases:
    """Return cases by the length of the input."""
    return build_cases(model_dict, verify_parameters, keys=input_sequence_lengths)
