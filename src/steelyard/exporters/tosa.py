"""TOSA from a TFLite file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any


def of_lite(source: Path, path: Path, kind: str) -> dict[str, Any]:
    """Write TOSA as bytecode, because its text changes with every version. Inputs and outputs keep the TFLite file's order."""
    import tosa_converter_for_tflite as converter

    converter.tflite_flatbuffer_to_tosa_mlir(str(source), str(path))
    return {"wrote": f"tosa-converter-for-tflite {version('tosa-converter-for-tflite')}", "as_source": True}
