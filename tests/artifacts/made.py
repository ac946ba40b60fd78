"""A small folder of artifacts, made in milliseconds without any framework."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steelyard.artifacts import arrays, manifest
from steelyard.artifacts.manifest import ArtifactProgram, ArtifactSet, MissingProgram, Producer, Tolerance

PROGRAM = "module @m { func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> } }\n"


def small(folder: Path, name: str = "small", times: float = 1.0) -> ArtifactSet:
    """One program in text, an input in fp32 and one in bf16, two outputs in the program's own order; fp32 and its tolerance scaled."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stablehlo.mlir").write_text(PROGRAM, encoding="utf-8")
    x = np.arange(2, dtype=np.float32) * np.float32(times)
    half = np.asarray([0x3F80, 0xC000], np.uint16)
    inputs = arrays.save(folder / "inputs_npy.tgz", "inputs_npy.tgz", [("input_0", "fp32", x), ("input_1", "bf16", half)])
    outputs = arrays.save(folder / "outputs_npy.tgz", "outputs_npy.tgz", [("output_0", "fp32", x), ("output_1", "int32", np.int32(7))])
    held = ArtifactSet(
        name, Producer("jax", "model/mlp@jax", {"jax": "0.10.2"}), inputs, outputs,
        programs=(ArtifactProgram("stablehlo_mlir", "text", "stablehlo.mlir", arguments=("input_0",), results=("output_1", "output_0")),),
        missing=(MissingProgram("tflite_int8", "flatbuffer", "TensorFlow is not installed", "steelyard env create tensorflow"),),
        tolerance=Tolerance(0.5 * times, 0.0),
        files=tuple(manifest.entry(folder, path) for path in ("stablehlo.mlir", "inputs_npy.tgz", "outputs_npy.tgz")),
    )  # fmt: skip
    manifest.write(folder, held)
    return held
