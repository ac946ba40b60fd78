"""The data types of the suite's definitions: the fields, values, names and defaults of the original, so that users' files work unchanged.

Standard library only: reading every definition imports no framework. A model is named by the dotted path of its module, which is
imported where it runs.
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
    """Raw input of a model. No `source_url` means the model's own; `file_input` and `random_input` write the others."""

    name: str
    source_url: str
    source_info: str = ""
    tags: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DeviceSpec:
    """A machine by the name that results have for it."""

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
    """A model with an input, and how far its answers may be from the expected ones."""

    name: str
    model: Model
    input_data: ModelTestData
    verify_parameters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def build(cls, model: Model, input_data: ModelTestData, verify_parameters: dict[str, Any] | None = None) -> BenchmarkCase:
        """Named `models/MODEL/inputs/INPUT`, which is all the identity that the original has."""
        return cls(f"models/{model.name}/inputs/{input_data.name}", model, input_data, dict(verify_parameters or {}))


INPUT_DATA_MODEL_DEFAULT = ModelTestData("INPUT_DATA_MODEL_DEFAULT", "")


def file_input(name: str, source: str, sha256: str, source_info: str = "") -> ModelTestData:
    """A file or an http(s) address as raw input, known by its hash: .txt, .json, .npy, .npz, and the bytes of anything else."""
    return ModelTestData(name, addresses.of_file(source, sha256), source_info)


def random_input(name: str, seed: int) -> ModelTestData:
    """Seeded random numbers of the shapes, formats and ranges that the model's own input has once it is preprocessed."""
    return ModelTestData(name, addresses.of_seed(seed))


ALL_DEVICES = tuple(DeviceSpec(*item) for item in json.loads(Path(__file__).with_name("devices.json").read_text(encoding="utf-8")))
"""The machines that results may name; `host-cpu` and `host-gpu` are whatever is here."""
DEVICES: Mapping[str, DeviceSpec] = {device.name: device for device in ALL_DEVICES}
