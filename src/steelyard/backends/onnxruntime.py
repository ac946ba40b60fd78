"""ONNX Runtime on the CPU, for exported programs of ONNX."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import onnxruntime

from steelyard.artifacts import onnx, programs
from steelyard.artifacts.signature import ProgramSignature, TensorType
from steelyard.backends._programs import LoadedProgram, PhaseTimes, ProgramBackend, ProgramFile, first_error
from steelyard.errors import SteelyardError, Unsupported
from steelyard.model.dtypes import canonical

ABOUT = {
    "package": "onnxruntime", "stack": "onnxruntime", "requires": ["numpy", "ml_dtypes", "onnxruntime"], "pins": "onnxruntime.txt",
    "why": "exported programs of ONNX",
}  # fmt: skip
QUIET = 3


class OnnxRuntime(ProgramBackend):
    """An ONNX program with all its weights inside; a program that refers to other files is unsupported."""

    name = "onnxruntime"
    install = "steelyard env create onnxruntime"
    kinds = ("onnx",)

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        clock, options = PhaseTimes(), onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = self.threads, 1, QUIET
        content = programs.read(file.path)
        onnx.refuse_other_files(content)
        try:
            with clock.phase("compile"):
                session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if "NotImplemented" in type(error).__name__ or "not a registered function" in str(error):
                raise Unsupported("ONNX Runtime cannot run the program", why=first_error(str(error))) from error
            raise SteelyardError("ONNX Runtime cannot load the program", why=first_error(str(error))) from error
        inputs, outputs = session.get_inputs(), session.get_outputs()
        names, answers = [item.name for item in inputs], [item.name for item in outputs]

        def call(*args: Any) -> Sequence[Any]:
            found: Sequence[Any] = session.run(answers, dict(zip(names, args, strict=True)))
            return found

        signature = ProgramSignature(tuple(map(_type, inputs)), tuple(map(_type, outputs)))
        facts = {"entry": file.entry, "signature": str(signature)}
        return LoadedProgram(signature, call, clock.seconds, len(content), "the .onnx file, weights included", facts=facts)

    def versions(self) -> dict[str, str]:
        return {"onnxruntime": version("onnxruntime"), "numpy": np.__version__, "python": platform.python_version()}


def _type(item: Any) -> TensorType:
    name = item.type.removeprefix("tensor(").removesuffix(")")
    return TensorType(canonical(name), tuple(size if isinstance(size, int) else None for size in item.shape))


BACKEND = OnnxRuntime
