"""StableHLO programs that others wrote, out of the package jax: `python published_programs.py FOLDER`, in JAX's environment.

JAX keeps programs of earlier years, serialized for a CPU, a GPU or a TPU, with inputs and the answers of that time, so that its tests
can see that they still run. Each becomes a folder of its own, named `DEVICE-MODULE-NAME`, with what was recorded. Vectors of an
eigenvalue or of a Schur form may each have another sign and are right, as JAX's own tests know: such programs stand alone, without
inputs and answers.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays, manifest
from steelyard.artifacts.manifest import ArtifactProgram, ArtifactSet, Producer

DATA = "jax._src.internal_test_util.export_back_compat_test_data"
CONTENT = "mlir_module_serialized"
SEVERAL_ANSWERS = ("eig", "schur")
"""Parts of names of those whose answers are not the only right ones."""


def found() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Programs by name, as JAX's modules hold them: dictionaries, some of them in others."""
    for item in pkgutil.iter_modules(importlib.import_module(DATA).__path__):
        module = importlib.import_module(f"{DATA}.{item.name}")
        for name, value in sorted(vars(module).items()):
            if isinstance(value, dict) and not name.startswith("__"):
                for words, held in _within(name, value):
                    yield f"{held['platform']}-{item.name}-{words}", held


def _within(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if CONTENT in value:
        yield name, value
        return
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _within(f"{name}-{key}", inner)


def save(folder: Path, held: Mapping[str, Any]) -> None:
    """A folder of one program with its inputs and recorded answers."""
    folder.mkdir(parents=True)
    program = ArtifactProgram("stablehlo_mlir", "vhlo", "program.mlirbc")
    (folder / program.file).write_bytes(held[CONTENT])
    if any(word in folder.name.lower() for word in SEVERAL_ANSWERS):
        return
    kept = []
    for what, values in (("input", held["inputs"]), ("output", held["expected_outputs"])):
        listed = [np.asarray(value) for value in values]
        named = [(f"{what}_{number}", arrays.dtype_of(value), value) for number, value in enumerate(listed)]
        kept.append(arrays.save(folder / f"{what}s_npy.tgz", f"{what}s_npy.tgz", named))
    files = tuple(manifest.entry(folder, name) for name in (program.file, "inputs_npy.tgz", "outputs_npy.tgz"))
    manifest.write(folder, ArtifactSet(folder.name, Producer("jax", "its own tests"), *kept, programs=(program,), files=files))


def write(root: Path) -> int:
    """All of them; how many there are."""
    count = 0
    for name, held in found():
        save(root / name, held)
        count += 1
    return count


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
