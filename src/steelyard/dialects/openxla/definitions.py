"""The data types of the suite's definitions: the fields, values, names and defaults of the original, so that users' files work unchanged.

Reading definitions imports no framework: a model is named by the dotted path of its module, which is imported only where it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from steelyard.model import addresses


class ModelFrameworkType(Enum):
    """Frameworks of models."""

    TF_V1 = "tensorflow_v1"
    TF_V2 = "tensorflow_v2"
    TFLITE = "tflite"
    PYTORCH = "pytorch"
    JAX = "jax"
    GGML = "ggml"


class ModelArtifactType(Enum):
    """Forms in which a model can be exported."""

    TF_SAVEDMODEL_V1 = "tf_savedmodel_v1"
    TF_SAVEDMODEL_V2 = "tf_savedmodel_v2"
    TFLITE_FP32 = "tflite_fp32"
    TFLITE_FP32_STABLEHLO = "tflite_fp32_stablehlo"
    TFLITE_FP16 = "tflite_fp16"
    TFLITE_DYNAMIC_RANGE_QUANT = "tflite_dynamic_range_quant"
    TFLITE_INT8 = "tflite_int8"
    XLA_HLO_DUMP = "xla_hlo_dump"
    STABLEHLO_MLIR = "stablehlo_mlir"
    LINALG_MLIR = "linalg_mlir"
    TOSA_MLIR = "tosa_mlir"


@dataclass(frozen=True)
class ModelImplementation:
    """The code of a model; `module_path` is imported by name where the model runs, and its `create_model` is called."""

    name: str
    tags: list[str]
    framework_type: ModelFrameworkType
    source_info: str | None = None
    module_path: str | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Model:
    """An implementation with the parameters that `create_model` gets as keywords."""

    name: str
    tags: list[str]
    model_impl: ModelImplementation
    model_parameters: dict[str, Any]
    artifacts_dir_url: str | None = None
    exported_model_types: list[ModelArtifactType] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModelTestData:
    """Raw input of a model; an empty `source_url` means the model's own input. `file_input` and `random_input` make other inputs."""

    name: str
    source_url: str
    source_info: str = ""
    tags: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DeviceSpec:
    """A machine that results may name."""

    name: str
    host_type: str
    host_model: str
    host_environment: str
    accelerator_type: str
    accelerator_model: str
    accelerator_architecture: str
    accelerator_attributes: dict[str, Any]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class BenchmarkCase:
    """A model with an input, and the tolerances of its answers."""

    name: str
    model: Model
    input_data: ModelTestData
    verify_parameters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def build(cls, model: Model, input_data: ModelTestData, verify_parameters: dict[str, Any] | None = None) -> BenchmarkCase:
        """Return a case named `models/MODEL/inputs/INPUT`; the original identifies cases by this name alone."""
        return cls(f"models/{model.name}/inputs/{input_data.name}", model, input_data, dict(verify_parameters or {}))


INPUT_DATA_MODEL_DEFAULT = ModelTestData("INPUT_DATA_MODEL_DEFAULT", "")


def file_input(name: str, source: str, sha256: str, source_info: str = "") -> ModelTestData:
    """Return a file or an http(s) address, checked by its hash, as raw input: .txt, .json, .npy and .npz are decoded, others are bytes."""
    return ModelTestData(name, addresses.of_file(source, sha256), source_info)


def random_input(name: str, seed: int) -> ModelTestData:
    """Return seeded random numbers as input, with the shapes, formats and ranges of the model's own preprocessed input."""
    return ModelTestData(name, addresses.of_seed(seed))


ALL_DEVICES = tuple(DeviceSpec(*item) for item in json.loads(Path(__file__).with_name("devices.json").read_text(encoding="utf-8")))
"""The machines that results may name; `host-cpu` and `host-gpu` stand for this machine."""
DEVICES: Mapping[str, DeviceSpec] = {device.name: device for device in ALL_DEVICES}
