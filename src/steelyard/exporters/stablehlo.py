"""Converts StableHLO from any framework to other forms, with the library that XLA itself uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.artifacts.forms import version_in
from steelyard.errors import SteelyardError
from steelyard.exporters.jax import check_whole


def _parsed(source: Path) -> Any:
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        try:
            return ir.Module.parse(source.read_bytes())
        except ir.MLIRError as error:
            why = str(error)[:300]
            raise SteelyardError(
                "this jaxlib cannot read the exported StableHLO", why=why, do="install a jaxlib of a matching version"
            ) from None


def bytecode(source: Path, path: Path, kind: str) -> dict[str, Any]:
    """Write a text program as MLIR bytecode."""
    with path.open("wb") as file:
        _parsed(source).operation.write_bytecode(file)
    return {"wrote": version_in(path)}


def versioned(source: Path, path: Path, kind: str) -> dict[str, Any]:
    """Write a program in the versioned form (VHLO), which later versions can read."""
    from jaxlib.mlir.dialects import stablehlo

    module = _parsed(source)
    with module.context:
        path.write_bytes(stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version()))
    return {"wrote": version_in(path)}


def hlo(source: Path, path: Path, kind: str) -> dict[str, Any]:
    """Write HLO as XLA reads the program, with its constants; the program returns a tuple."""
    import jaxlib
    from jaxlib import xla_client

    made = xla_client._xla.mlir.mlir_module_to_xla_computation(str(_parsed(source)), use_tuple_args=False, return_tuple=True)
    text = made.as_hlo_text(print_large_constants=True)
    check_whole(text)
    path.write_text(text, encoding="utf-8")
    return {"wrote": f"XLA of jaxlib {jaxlib.__version__}"}
