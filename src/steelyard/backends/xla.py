"""XLA through PJRT, for exported programs: StableHLO as text, bytecode or VHLO, and HLO as text. No code of a model is involved."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

from steelyard.backends._programs import LoadedProgram, PhaseTimes, ProgramBackend, ProgramFile, first_error
from steelyard.backends._stablehlo import StableProgram, understood
from steelyard.errors import SteelyardError, Unsupported
from steelyard.measuring.clock import Timer, WaitingTimer

ABOUT = {
    "package": "jax", "stack": "jax", "requires": ["numpy", "jax"], "pins": "jax.txt", "flags": "XLA_FLAGS", "compiles": True,
    "devices": {"cpu": "cpu", "cuda": "cuda", "tpu": "tpu"},
    "variables": {
        "JAX_PLATFORMS": "{device}", "PJRT_NPROC": "{threads}", "NPROC": "{threads}", "XLA_FLAGS": "",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_X64": "1",
    },
    "refusals": ["Unknown flags? in XLA_FLAGS: [^\\n]*"],
}  # fmt: skip
PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
MEMORY = {
    "program_temporaries": "temp_size_in_bytes", "program_arguments": "argument_size_in_bytes", "program_outputs": "output_size_in_bytes",
}  # fmt: skip
LACKING = ("UNIMPLEMENTED", "INVALID_ARGUMENT", "NOT_FOUND", "can't be translated to XLA HLO")
"""Words in XLA's errors that mean that it lacks a feature, as opposed to a failure."""


class Xla(ProgramBackend):
    """A program compiled by XLA for one device, called through PJRT."""

    name = "xla"
    install = "steelyard env create jax"
    kinds = ("stablehlo_mlir", "xla_hlo_dump")

    def open(self) -> None:
        if self.device not in PLATFORMS:
            raise Unsupported(f"backend xla runs on {', '.join(PLATFORMS)}, not on {self.device!r}")
        self._program, self._first = None, None
        try:
            self.spot = jax.devices(PLATFORMS[self.device])[0]
        except RuntimeError as error:
            raise Unsupported(f"XLA has no device {self.device} here", why=str(error).splitlines()[0]) from error

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        clock = PhaseTimes()
        with clock.phase("parse"):
            program = understood(file)
        with clock.phase("compile"):
            made = self._compiled(program)
        stats = made.get_compiled_memory_stats()
        code, words = int(stats.generated_code_size_in_bytes), "the machine code"
        if not code:
            code, words = len(made.serialize()), "the executable as XLA serializes it, constants included"
        text = made.hlo_modules()[0].to_string()
        head = text[: text.find("\n")]
        taken = {name: float(getattr(stats, key)) for name, key in MEMORY.items()}

        def call(*args: Any) -> Sequence[Any]:
            answers = made.execute_sharded(args).disassemble_into_single_device_arrays()
            found = [answer[0] for answer in answers]
            for answer in found:
                answer.block_until_ready()
            return found

        facts = {"entry": program.entry, "signature": str(program.signature), "memory": taken, "flags": _flags()}
        return LoadedProgram(
            program.signature, call, clock.seconds, code, words,
            held=lambda: {"program_memory": sum(taken.values())} | self._device_peak(), facts=facts,
            consumes="input_output_alias={ {" in head or "buffer_donor={" in head,
            texts={"optimized": lambda: {"1": text}, "stablehlo": lambda: {"1": program.module.operation.get_asm()}},
        )  # fmt: skip

    def _compiled(self, program: StableProgram) -> Any:
        devices = xla_client.DeviceList((self.spot,))
        try:
            return self.spot.client.compile_and_load(program.bytecode(), devices, xla_client.CompileOptions())
        except jax.errors.JaxRuntimeError as error:
            told = str(error)
            if any(word in told for word in LACKING):
                raise Unsupported("XLA cannot compile the program", why=first_error(told)) from error
            raise SteelyardError("XLA failed to compile the program", why=first_error(told)) from error

    def _device_peak(self) -> dict[str, float]:
        peak = (self.spot.memory_stats() or {}).get("peak_bytes_in_use")
        return {} if peak is None else {"runtime_peak_memory": float(peak)}

    def timer(self) -> Timer:
        """Return a timer that counts no disturbances: PJRT's own threads preempt ours, without any other program disturbing a block."""
        return WaitingTimer(self.threads)

    def place(self, data: np.ndarray[Any, Any]) -> Any:
        return jax.device_put(data, self.spot)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        return self.place(np.array(value)) if isinstance(value, jax.Array) else super().copy(value, buffers)

    def read(self, value: Any) -> np.ndarray[Any, Any] | None:
        return np.asarray(value) if isinstance(value, (jax.Array, np.ndarray)) else None

    def facts(self) -> dict[str, Any]:
        return {"device": str(self.spot.device_kind), "platform": self.spot.platform}

    def versions(self) -> dict[str, str]:
        return {
            "jaxlib": version("jaxlib"), "runtime": str(self.spot.client.platform_version).split("\n")[0],
            "device": str(self.spot.device_kind), "numpy": np.__version__, "python": platform.python_version(),
        }  # fmt: skip


def _flags() -> str:
    return os.environ.get("XLA_FLAGS", "")


BACKEND = Xla
