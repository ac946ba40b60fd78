"""StableHLO's reference interpreter: slow, operation by operation as specified; compilers' outputs are compared with its outputs."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from steelyard.backends._programs import LoadedProgram, PhaseTimes, ProgramBackend, ProgramFile, first_error
from steelyard.backends._stablehlo import understood
from steelyard.errors import Unsupported
from steelyard.measuring.clock import Timer
from steelyard.model.experiment import Settings
from steelyard.model.record import REFERENCE, Figure
from steelyard.model.task import Task

ABOUT = {
    "package": "jax", "stack": "jax", "requires": ["numpy", "jax"], "pins": "jax.txt",
    "variables": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "JAX_ENABLE_X64": "1"},
    "refusals": ["Unknown flags? in XLA_FLAGS: [^\\n]*", "LLVM ERROR: [^\\n]*"],
}  # fmt: skip


class Interpreter(ProgramBackend):
    """A program evaluated by the reference interpreter that comes with jaxlib."""

    name = "interpreter"
    install = "steelyard env create jax"
    kinds = ("stablehlo_mlir", "xla_hlo_dump")

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        clock = PhaseTimes()
        with clock.phase("parse"):
            program = understood(file).spelt_out()
        if any(kind.dtype.startswith("complex") for kind in (*program.signature.inputs, *program.signature.outputs)):
            raise Unsupported("the reference interpreter does not support complex inputs or outputs here")

        def call(*args: Any) -> Sequence[Any]:
            try:
                return program.interpreted(list(args))
            except (ValueError, RuntimeError, TypeError) as error:
                raise Unsupported("the reference interpreter cannot evaluate the program", why=first_error(str(error))) from error

        return LoadedProgram(program.signature, call, clock.seconds, facts={"entry": program.entry, "signature": str(program.signature)})

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        figures, facts = super().beside(task, timer, seconds, settings)
        return figures, {**facts, REFERENCE: True}

    def versions(self) -> dict[str, str]:
        return {"jaxlib": version("jaxlib"), "numpy": np.__version__, "python": platform.python_version()}


BACKEND = Interpreter
