"""The programs that each framework's models can be exported as, by which exporter and in which environment; no framework is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from steelyard.artifacts.manifest import KINDS
from steelyard.errors import unknown

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "jax": ("jax",), "jaxlib": ("jaxlib",), "tensorflow": ("tensorflow", "tensorflow-cpu"), "torch": ("torch",),
    "torch_mlir": ("torch-mlir",), "onnxscript": ("onnxscript",), "onnx": ("onnx",),
    "tosa_converter_for_tflite": ("tosa-converter-for-tflite",),
}  # fmt: skip
"""Modules that exporters import, and the packages that have them."""
SCRATCH = ".scratch-"
"""Prefix of the name of the exporters' scratch folder, inside their output folder."""


@dataclass(frozen=True)
class ExportWay:
    """One program that a framework's model can be exported as.

    `make` is the function ("module:name" in this package) that makes it from the model or, if `source` names another program, from that
    program's file. `needs` are the modules that it imports; the environment `stack` has them.
    """

    framework: str
    kind: str
    form: str
    file: str
    make: str
    needs: tuple[str, ...]
    stack: str
    source: str = ""

    @property
    def key(self) -> str:
        """Kind and form, as `--only` takes them."""
        return f"{self.kind}:{self.form}"

    @property
    def word(self) -> str:
        """The key, and its source if it is made from another program's file."""
        return f"{self.key}{OF}{self.source}" if self.source else self.key


OF = "<"
STABLEHLO, TFLITE = "stablehlo_mlir:text", "tflite_fp32:flatbuffer"
HLO_FILE, VHLO_FILE = "xla_hlo_before_optimizations.txt", "stablehlo_vhlo.mlirbc"
LITE = {
    "tflite_fp32": "model_fp32.tflite", "tflite_fp32_stablehlo": "model_fp32_stablehlo.tflite", "tflite_fp16": "model_fp16.tflite",
    "tflite_dynamic_range_quant": "model_dynamic_range_quant.tflite", "tflite_int8": "model_int8.tflite",
}  # fmt: skip


def _lite(framework: str, needs: tuple[str, ...], stack: str) -> Iterator[ExportWay]:
    yield ExportWay(framework, "tf_savedmodel_v2", "archive", "tf-model.tgz", "tensorflow:saved_model", needs, stack)
    for kind, file in LITE.items():
        yield ExportWay(framework, kind, "flatbuffer", file, "tensorflow:lite", needs, stack)
    needs = ("tosa_converter_for_tflite",)
    yield ExportWay(framework, "tosa_mlir", "bytecode", "tosa.mlirbc", "tosa:of_lite", needs, "tflite", source=TFLITE)


def _lowered(framework: str) -> Iterator[ExportWay]:
    """Yield the programs that XLA's own library makes from StableHLO."""
    yield ExportWay(framework, "stablehlo_mlir", "vhlo", VHLO_FILE, "stablehlo:versioned", ("jaxlib",), "jax", source=STABLEHLO)
    yield ExportWay(framework, "xla_hlo_dump", "text", HLO_FILE, "stablehlo:hlo", ("jaxlib",), "jax", source=STABLEHLO)


WAYS: tuple[ExportWay, ...] = (
    ExportWay("jax", "stablehlo_mlir", "text", "stablehlo.mlir", "jax:stablehlo_text", ("jax",), "jax"),
    ExportWay("jax", "stablehlo_mlir", "bytecode", "stablehlo.mlirbc", "jax:stablehlo_bytecode", ("jax",), "jax"),
    ExportWay("jax", "stablehlo_mlir", "vhlo", VHLO_FILE, "jax:versioned", ("jax",), "jax"),
    ExportWay("jax", "xla_hlo_dump", "text", HLO_FILE, "jax:hlo", ("jax",), "jax"),
    *_lite("jax", ("jax", "tensorflow"), "tflite"),
    ExportWay("torch", "torch_export", "archive", "model.pt2", "torch:exported", ("torch",), "torch"),
    ExportWay("torch", "onnx", "protobuf", "model.onnx", "torch:onnx", ("torch", "onnx", "onnxscript"), "torch-mlir"),
    ExportWay("torch", "stablehlo_mlir", "text", "stablehlo.mlir", "torch:stablehlo_text", ("torch", "torch_mlir"), "torch-mlir"),
    ExportWay("torch", "stablehlo_mlir", "bytecode", "stablehlo.mlirbc", "torch:stablehlo_bytecode", ("torch", "torch_mlir"), "torch-mlir"),
    *_lowered("torch"),
    ExportWay("torch", "linalg_mlir", "bytecode", "linalg.mlirbc", "torch:linalg", ("torch", "torch_mlir"), "torch-mlir"),
    ExportWay("torch", "tosa_mlir", "bytecode", "tosa.mlirbc", "torch:tosa", ("torch", "torch_mlir"), "torch-mlir"),
    ExportWay("tensorflow", "stablehlo_mlir", "text", "stablehlo.mlir", "tensorflow:stablehlo_text", ("tensorflow",), "tensorflow"),
    ExportWay("tensorflow", "stablehlo_mlir", "bytecode", "stablehlo.mlirbc", "stablehlo:bytecode", ("jaxlib",), "jax", source=STABLEHLO),
    *_lowered("tensorflow"),
    *_lite("tensorflow", ("tensorflow",), "tensorflow"),
)
"""Every program that can be exported; a program made from another program's file comes after it."""


def no_way(framework: str, kind: str) -> str:
    """Return why a framework's models cannot be exported as this kind of program."""
    if kind == "tf_savedmodel_v1":
        return "TensorFlow 1 is no longer released"
    return f"Steelyard has no exporter from {framework} to it"


def chosen(framework: str, only: Sequence[str] = ()) -> list[ExportWay]:
    """Return all ways of a framework, or those named by KIND or KIND:FORM; KIND:FORM<SOURCE replaces the program it is made from."""
    ways = [way for way in WAYS if way.framework == framework]
    asked = {word.partition(OF)[0]: word.partition(OF)[2] for word in only}
    found = [way for way in ways if not only or way.kind in asked or way.key in asked]
    return [replace(way, source=asked[way.key]) if asked.get(way.key) and way.source else way for way in found]


def check_kinds(only: Iterable[str]) -> None:
    """Refuse words that do not name a kind of program."""
    known = {*KINDS, *(way.key for way in WAYS)}
    for word in only:
        for part in filter(None, word.split(OF)):
            if part not in known:
                raise unknown("kind of program", part, known, listing=", ".join(KINDS))


def sources_of(ways: Sequence[ExportWay]) -> list[ExportWay]:
    """Return the ways plus those whose files they are made from, in the order of WAYS."""
    wanted = {way.key: way for way in ways}
    for way in ways:
        wanted |= {item.key: item for item in WAYS if (item.framework, item.key) == (way.framework, way.source) and item.key not in wanted}
    order = [way.key for way in WAYS]
    return sorted(wanted.values(), key=lambda way: order.index(way.key))
