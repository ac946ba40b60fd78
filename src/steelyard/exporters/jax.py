"""Exporters for JAX: StableHLO in three forms and HLO, with the weights in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays
from steelyard.artifacts.forms import version_in
from steelyard.errors import SteelyardError
from steelyard.exporters.subjects import Exportable, HostArray, split
from steelyard.model.task import Task

ELIDED = ("constant({...})", "dense_resource<__elided__>")


def prepare(task: Task, be: Any) -> Exportable:
    """Return a JAX task as a function of its inputs."""
    import jax

    given, arguments = split(task, lambda value: isinstance(value, (jax.Array, np.ndarray)))
    fn: Any = getattr(task.fn, "started", task.fn)

    def call(*inputs: Any) -> tuple[Any, ...]:
        args, kwargs = arguments(*inputs)
        return tuple(jax.tree_util.tree_leaves(fn(*args, **kwargs)))

    jitted = jax.jit(call, keep_unused=True)
    return Exportable(jitted, tuple(jax.numpy.asarray(item) for item in given), host, task, be)


def host(value: Any) -> tuple[str, HostArray]:
    """Return the format and the data of an array."""
    data = np.asarray(value)
    dtype = arrays.dtype_of(data)
    return dtype, data


def _formats(subject: Exportable) -> list[Any]:
    """Return the inputs' shapes and formats: arrays on a device would put shardings into the program, which IREE cannot read."""
    import jax

    return [jax.ShapeDtypeStruct(item.shape, item.dtype) for item in subject.inputs]


def _lowered(subject: Exportable) -> Any:
    if "lowered" not in subject.kept:
        subject.kept["lowered"] = subject.call.lower(*_formats(subject))  # type: ignore[attr-defined]
    return subject.kept["lowered"]


def _module(subject: Exportable) -> Any:
    if "module" not in subject.kept:
        subject.kept["module"] = _lowered(subject).compiler_ir("stablehlo")
    return subject.kept["module"]


def _wrote() -> str:
    from jaxlib.mlir.dialects import stablehlo

    return f"StableHLO {stablehlo.get_current_version()}"


def stablehlo_text(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO as MLIR text, with every constant in full."""
    text = str(_module(subject))
    check_whole(text)
    path.write_text(text, encoding="utf-8")
    return {"wrote": _wrote()}


def stablehlo_bytecode(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO as MLIR bytecode, which other versions of MLIR read best."""
    with path.open("wb") as file:
        _module(subject).operation.write_bytecode(file)
    return {"wrote": _wrote()}


def versioned(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO in the versioned form (VHLO), which later versions can read."""
    import jax

    exported = jax.export.export(subject.call)(*_formats(subject))
    path.write_bytes(exported.mlir_module_serialized)
    return {"wrote": version_in(path)}


def hlo(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write HLO before any XLA pass, with its constants."""
    import jaxlib

    text = _lowered(subject).as_text(dialect="hlo")
    check_whole(text)
    path.write_text(text, encoding="utf-8")
    return {"wrote": f"XLA of jaxlib {jaxlib.__version__}"}


def check_whole(text: str) -> None:
    """Refuse a program that was printed without its weights, because it would compute with zeros."""
    if any(mark in text for mark in ELIDED):
        raise SteelyardError("the printed program lacks its weights", why="constants were elided", do="report this: it is a bug")
