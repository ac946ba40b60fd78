"""The original's suite: its 193 models and a case for each, with the reason if a case is not expected to be measured.

Names, sizes and tolerances are the original's, its mistakes are corrected: every model has its own case and a tag for each size, declares
only exports that exist, and is listed even if the original left it out as too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Template

from steelyard.dialects.openxla.definitions import BenchmarkCase, Model, ModelArtifactType, ModelFrameworkType, ModelImplementation
from steelyard.dialects.openxla.templates import AXES, ModelTemplate, axes_name, build_cases, build_models
from steelyard.workloads.models.families import FAMILIES
from steelyard.workloads.models.families.sizes import LENGTHS, NamedSizes, named_sizes

A, F = ModelArtifactType, ModelFrameworkType
FRAMEWORKS = {"jax": (F.JAX,), "pytorch": (F.PYTORCH,), "tensorflow": (F.TF_V2, F.TF_V1)}
"""The tools, and the frameworks whose models each runs; the suite's models are of the first framework."""
SHORT = {"jax": "JAX", "pytorch": "PT", "tensorflow": "TF"}
EXPORTS = {"jax": [A.STABLEHLO_MLIR, A.XLA_HLO_DUMP], "pytorch": [A.LINALG_MLIR]}
EXPORTS["tensorflow"] = [*EXPORTS["jax"], A.TF_SAVEDMODEL_V2]
IMPLEMENTATIONS = {
    (family.name, family.framework): ModelImplementation(
        f"{family.name}_{SHORT[family.framework]}", [*family.tags], FRAMEWORKS[family.framework][0], module_path=family.module_path
    )
    for family in FAMILIES
}
USUAL, STRICT, QUANTIZED = 0.5, 0.1, 2.0
"""Absolute tolerances of answers; relative tolerances are always 0."""
TOO_LARGE = "the original left it out because its GPU, an A100 of 40 GB, had too little memory (its issue 122)"
ARTIFACT = "a TFLite model is an exported file, which framework-level tools do not run; it is made from the JAX model of the same name"

PARAMETERS = {"gen_size": "max_new_tokens"}
"""The keyword of `create_model` for an axis, if it differs from the axis' name."""


def of_row(row: NamedSizes) -> Iterator[tuple[Model, float]]:
    """Yield the models of one row of the table, each with its tolerance."""
    family, framework, name, given, axes = row
    parameters = {"framework": framework, "data_type": "fp32", **given}
    parameters |= {PARAMETERS.get(key, key): AXES[key].value for key in axes}
    fixed = [f"batch-{given['batch_size']}"] if "batch_size" in given else []
    tags: list[str | Template] = [parameters["data_type"], *fixed, *(AXES[key].tagged for key in axes)]
    template = ModelTemplate(
        axes_name(name, axes), tags, IMPLEMENTATIONS[family, framework], parameters, exported_model_types=EXPORTS[framework]
    )
    for model in build_models(template, axes).values():
        yield model, STRICT if family == "EXAMPLE" else USUAL


def tflite() -> Iterator[tuple[Model, float]]:
    """Yield the TFLite models that the original measured, with tolerances: BERT and ViT from JAX in four number formats."""
    implementation = ModelImplementation("TFLITE_MODEL_IMPL", ["tflite"], F.TFLITE)
    forms = {"FP32": A.TFLITE_FP32, "FP16": A.TFLITE_FP16, "DYN_QUANT": A.TFLITE_DYNAMIC_RANGE_QUANT, "INT8": A.TFLITE_INT8}
    for word, artifact in forms.items():
        tag, atol = word.lower().replace("_", "-"), QUANTIZED if word in ("DYN_QUANT", "INT8") else USUAL
        exported = [artifact, A.TOSA_MLIR]
        source = {"data_type": tag, "artifact": artifact.value, "batch_size": 1}
        tags: list[str | Template] = [tag, "batch-1", AXES["seq_len"].tagged]
        given = {**source, "model": Template("BERT_BASE_FP32_JAX_I32_SEQLEN${seq_len}"), "seq_len": AXES["seq_len"].value}
        name = axes_name(f"BERT_BASE_{word}_TFLITE_I32", ["seq_len"])
        template = ModelTemplate(name, tags, implementation, given, exported_model_types=exported)
        yield from ((model, atol) for model in build_models(template, {"seq_len": LENGTHS}).values())
        vit = {**source, "model": "VIT_CLASSIFICATION_JAX_3X224X224XF32"}
        number = "INT8" if word == "INT8" else "F32"
        yield Model(f"VIT_CLASSIFICATION_{word}_TFLITE_3X224X224X{number}", [tag, "batch-1"], implementation, vit, None, exported), atol


def _case(model: Model, atol: float) -> BenchmarkCase:
    tolerance = {"absolute_tolerance": atol, "relative_tolerance": 0}
    return build_cases({model.name: model}, tolerance)[model.name]


_ALL = [*(item for row in named_sizes() for item in of_row(row)), *tflite()]
ALL_MODELS: list[Model] = [model for model, _ in _ALL]
ALL_BENCHMARKS: list[BenchmarkCase] = [_case(model, atol) for model, atol in _ALL]


def expected(case: BenchmarkCase) -> str:
    """Return why a case is not expected to be measured here; empty for all other cases."""
    model, kind = case.model, case.model.model_impl.framework_type
    if kind is F.TFLITE:
        return ARTIFACT
    short = model.model_parameters["data_type"] == "fp16" and kind is F.PYTORCH
    large = model.model_parameters["batch_size"] >= (512 if "bert" in model.model_impl.tags else 2048)
    return TOO_LARGE if short and large and model.model_parameters.get("preset", "full") == "full" else ""


EXPECTED: dict[str, str] = {case.name: why for case in ALL_BENCHMARKS if (why := expected(case))}
"""Cases that are not expected to be measured, and why: 28 exported files, and 4 that were too large for the original's GPU."""
