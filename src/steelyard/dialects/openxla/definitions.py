"""What the suite is described with: the fields, values, names and defaults of the original, so that its users' files read as they stand.

Standard library only: reading every definition imports no framework. A model is named by the dotted path of its module, which is
imported where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class ModelFrameworkType(Enum):
    """What a model is written in."""

    TF_V1 = "tensorflow_v1"
    TF_V2 = "tensorflow_v2"
    TFLITE = "tflite"
    PYTORCH = "pytorch"
    JAX = "jax"
    GGML = "ggml"


class ModelArtifactType(Enum):
    """What a model can be exported as."""

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
    return ModelTestData(name, f"{source}#sha256={sha256}", source_info)


def random_input(name: str, seed: int) -> ModelTestData:
    """Seeded random numbers of the shapes, formats and ranges that the model's own input has once it is preprocessed."""
    return ModelTestData(name, f"random:{seed}")


def _device(name: str, where: tuple[str, str, str], kind: str, model: str, architecture: str, **attributes: Any) -> DeviceSpec:
    return DeviceSpec(name, *where, kind, model, architecture, attributes)


_LINUX, _ANDROID, _ANY = "linux-x86_64", "android", "unknown"
_CASCADE = ("cpu", "intel-cascadelake", "x86_64-cascadelake")
ALL_DEVICES = (
    _device("a2-highgpu-1g", ("gcp", "a2-highgpu-1g", _LINUX), "gpu", "nvidia-a100-40g", "nvidia-ampere", num_of_gpus=1),
    _device("c2-standard-16", ("gcp", "c2-standard-16", _LINUX), *_CASCADE, num_of_cores=16),
    _device("c2-standard-60", ("gcp", "c2-standard-60", _LINUX), *_CASCADE, num_of_cores=30),
    _device("host-gpu", (_ANY, _ANY, _ANY), "gpu", _ANY, _ANY),
    _device("host-cpu", (_ANY, _ANY, _ANY), "cpu", _ANY, _ANY),
    _device("pixel-6-pro", ("mobile", "pixel-6-pro", _ANDROID), "cpu", "pixel-6-pro", "armv8.2-a", num_of_cores=8),
    _device("pixel-8-pro", ("mobile", "pixel-8-pro", _ANDROID), "cpu", "pixel-8-pro", "armv9-a", num_of_cores=9),
)
"""The machines that results may name; `host-cpu` and `host-gpu` are whatever is here."""
DEVICES: Mapping[str, DeviceSpec] = {device.name: device for device in ALL_DEVICES}
