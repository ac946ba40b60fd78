"""LiteRT, which runs .tflite programs, with its own kernels and XNNPACK."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter as TfliteInterpreter

from steelyard.artifacts import arrays, programs, tflite
from steelyard.artifacts.signature import ProgramSignature, TensorType
from steelyard.backends._programs import LoadedProgram, PhaseTimes, ProgramBackend, ProgramFile, first_error, heard
from steelyard.errors import SteelyardError, Unsupported

ABOUT = {
    "package": "ai_edge_litert", "stack": "litert", "requires": ["numpy", "ml_dtypes", "ai-edge-litert"], "pins": "litert.txt",
    "why": "exported programs of TFLite",
}  # fmt: skip


class Litert(ProgramBackend):
    """A TFLite program; a call copies its inputs in and its outputs out, as the interpreter's own interface does."""

    name = "litert"
    install = "steelyard env create litert"
    kinds = ("tflite_fp32", "tflite_fp32_stablehlo", "tflite_fp16", "tflite_dynamic_range_quant", "tflite_int8")

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        content = programs.read(file.path)
        programs.refuse(tflite.custom_operators(content), file.allowed, "has operators that are not TFLite's own:")
        clock = PhaseTimes()
        with heard() as told:
            try:
                with clock.phase("parse"):
                    made = TfliteInterpreter(model_content=content, num_threads=self.threads)
                with clock.phase("load"):
                    made.allocate_tensors()
            except (RuntimeError, ValueError) as error:
                raise _refused(error, told()) from error
        inputs, outputs = made.get_input_details(), made.get_output_details()
        places, answers = [item["index"] for item in inputs], [item["index"] for item in outputs]

        def call(*args: Any) -> Sequence[Any]:
            for place, value in zip(places, args, strict=True):
                made.set_tensor(place, value)
            made.invoke()
            return [made.get_tensor(place) for place in answers]

        signature = ProgramSignature(tuple(map(_type, inputs)), tuple(map(_type, outputs)))
        facts = {"entry": file.entry, "signature": str(signature), "operators": len(made._get_ops_details())}
        return LoadedProgram(signature, call, clock.seconds, len(content), "the .tflite file, weights included", facts=facts)

    def versions(self) -> dict[str, str]:
        return {"ai-edge-litert": version("ai-edge-litert"), "numpy": np.__version__, "python": platform.python_version()}


def _refused(error: Exception, told: str) -> SteelyardError:
    why = first_error(str(error) or told)
    if "nresolved" in why or "not supported" in why or "Registration failed" in why or "Select TensorFlow" in why:
        return Unsupported("LiteRT cannot run the program", why=f"{why} The program has operators that this LiteRT has no kernels for")
    return SteelyardError("LiteRT cannot load the program", why=why)


def _type(details: dict[str, Any]) -> TensorType:
    shape = tuple(int(size) for size in details["shape"])
    return TensorType(arrays.dtype_of(np.zeros(0, details["dtype"])), shape)


BACKEND = Litert
