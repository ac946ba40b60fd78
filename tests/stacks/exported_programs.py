"""Exported programs with recorded values, some of them broken on purpose: `python exported_programs.py FOLDER`, in JAX's environment."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays, manifest
from steelyard.artifacts.manifest import ArtifactProgram, ArtifactSet, Producer


def save(folder: Path, program: ArtifactProgram, content: str | bytes, inputs: list[Any], outputs: list[Any]) -> ArtifactSet:
    """A folder of one program with what it was called with and answered."""
    folder.mkdir(parents=True)
    (folder / program.file).write_bytes(content if isinstance(content, bytes) else content.encode())
    kept = [
        arrays.save(folder / f"{what}s_npy.tgz", f"{what}s_npy.tgz", [(f"{what}_{n}", arrays.dtype_of(v), v) for n, v in enumerate(values)])
        for what, values in (("input", inputs), ("output", outputs))
    ]
    names = (program.file, "inputs_npy.tgz", "outputs_npy.tgz")
    held = ArtifactSet(
        folder.name, Producer("jax", "test"), *kept, programs=(program,), files=tuple(manifest.entry(folder, name) for name in names)
    )
    manifest.write(folder, held)
    return held


def write(root: Path) -> None:
    """Right ones in every form, and wrong ones each with a name that says what was done to it."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 8)).astype("float32")
    x, y = (rng.standard_normal((4, 8)).astype("float32") for _ in range(2))

    def model(weight: Any) -> Any:
        return jax.jit(lambda a, b: ((a - 2 * b) @ weight, jnp.tanh(a).astype(jnp.bfloat16), (a + b).sum(-1), a * b))

    right = model(weight)
    lowered = right.lower(x, y)
    outputs = [np.asarray(value) for value in right(x, y)]
    text = str(lowered.compiler_ir("stablehlo"))
    plain = ArtifactProgram("stablehlo_mlir", "text", "stablehlo.mlir")
    save(root / "text", plain, text, [x, y], outputs)
    vhlo = jax.export.export(right)(x, y).mlir_module_serialized
    save(root / "vhlo", ArtifactProgram("stablehlo_mlir", "vhlo", "s.mlirbc"), vhlo, [x, y], outputs)
    hlo = ArtifactProgram("xla_hlo_dump", "text", "hlo.txt")
    save(root / "hlo", hlo, lowered.as_text(dialect="hlo"), [x, y], outputs)
    save(root / "elided", hlo, lowered.compiler_ir("hlo").as_hlo_text(), [x, y], outputs)
    planted = weight.copy()
    planted[3, 5] += 1
    save(root / "weight", plain, str(model(planted).lower(x, y).compiler_ir("stablehlo")), [x, y], outputs)
    save(root / "inputs", plain, text, [y, x], outputs)
    save(root / "last", plain, text, [x, y], [*outputs[:3], outputs[3] + 1])
    save(root / "dtype", plain, text, [x, y], [outputs[0], outputs[1].astype("float32"), *outputs[2:]])
    held = save(root / "outputs", plain, text, [x, y], outputs)
    swapped = ("output_0", "output_1", "output_3", "output_2")
    manifest.write(root / "outputs", replace(held, programs=(replace(plain, results=swapped),)))
    square = jax.jit(lambda a, b: (a + b, a - b))
    pair = [np.asarray(value) for value in square(x, y)]
    save(root / "order", plain, str(square.lower(x, y).compiler_ir("stablehlo")), [x, y], pair[::-1])
    host = jax.jit(lambda a: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(a.shape, a.dtype), a))
    save(root / "host", plain, str(host.lower(x).compiler_ir("stablehlo")), [x], [x])
    save(root / "cut", plain, text[: len(text) // 2], [x, y], outputs)
    blob = "0x04000000" + weight.tobytes().hex().upper()
    lines = (
        "module {\n  func.func @main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> {\n"
        "    %0 = stablehlo.constant dense_resource<w> : tensor<8x8xf32>\n"
        "    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>\n"
        "    return %1 : tensor<4x8xf32>\n  }\n}\n"
    )
    resources = '\n{-#\n  dialect_resources: {\n    builtin: {\n      w: "%s"\n    }\n  }\n#-}\n' % blob  # noqa: UP031
    save(root / "resource", plain, lines + resources, [x], [x @ weight])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
