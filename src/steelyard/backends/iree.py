"""IREE: exported programs of StableHLO, TOSA and linalg, compiled for the CPU and called through its runtime."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import iree.runtime
import numpy as np
from iree.compiler import api, tools

from steelyard.artifacts import programs
from steelyard.artifacts.signature import ProgramSignature, signature_in
from steelyard.backends._programs import CUT, LoadedProgram, PhaseTimes, ProgramBackend, ProgramFile, first_error, heard, is_cut
from steelyard.errors import SteelyardError, Unsupported

ABOUT = {
    "package": "iree", "stack": "iree", "requires": ["numpy", "ml_dtypes", "iree-base-compiler", "iree-base-runtime"],
    "pins": "iree.txt", "why": "exported programs compiled by IREE", "variables": {"IREE_FLAGS": "", "IREE_RUNTIME_FLAGS": ""},
    "flags": "IREE_FLAGS", "compiles": True,
}  # fmt: skip
TARGET = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host")
INPUT = {"stablehlo_mlir": "stablehlo", "tosa_mlir": "tosa", "linalg_mlir": "none"}
OVERWRITTEN = (b"tf.aliasing_output", b"jax.buffer_donor", b"iree.abi.output")
"""Attributes of a program that writes its outputs over its inputs."""
UNKNOWN = r"failed to legalize|not legal|[Uu]nsupported|not supported|unimplemented"
"""Words in errors of IREE's compiler that mean that it lacks a feature, as opposed to a failure."""
PHASES = ("input", "flow", "stream", "executable-targets")
ELIDING = ("--mlir-elide-elementsattrs-if-larger=16", "--mlir-elide-resource-strings-if-larger=16")
ADVICE = (
    "use an IREE version that fits the exporter's, or export VHLO",
    "text can only be read by the version that wrote it: export bytecode",
)
SHOWN = 8
"""How many values of a constant are printed where only names matter."""
FLAGS, RUNTIME_FLAGS = "IREE_FLAGS", "IREE_RUNTIME_FLAGS"
_runtime_told: list[tuple[str, ...]] = []
"""The flags that this process's runtime got; they can be set only once."""


class Iree(ProgramBackend):
    """A program compiled by IREE for this CPU; `threads` are the workers of its task system."""

    name = "iree"
    install = "steelyard env create iree"
    kinds = tuple(INPUT)

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        content = programs.read(file.path)
        if file.form == "text":
            programs.refuse_elided(content.decode("utf-8", "replace"))
        clock = PhaseTimes()
        code = self._compiled(content, file, clock)
        with clock.phase("load"):
            config = iree.runtime.Config(device=self._device())
            context = iree.runtime.SystemContext(config=config)
            module = iree.runtime.VmModule.copy_buffer(context.instance, code)
            context.add_vm_module(module)
        entry = _entry(module, file.entry)
        signature = _signature(module, entry)
        function = context.modules[module.name][entry]
        self.config = config

        def call(*args: Any) -> Sequence[Any]:
            answer = function(*args)
            return answer if isinstance(answer, tuple) else (answer,)

        facts = {"entry": entry, "signature": str(signature), "flags": os.environ.get(FLAGS, "")}
        consumes = any(word in content for word in OVERWRITTEN)
        return LoadedProgram(
            signature, call, clock.seconds, len(code), "IREE's module, constants included", self._held, facts, consumes,
            texts={"optimized": lambda: {phase: _phase_text(content, file.kind, phase) for phase in PHASES}},
        )  # fmt: skip

    def _compiled(self, content: bytes, file: ProgramFile, clock: PhaseTimes) -> bytes:
        session = api.Session()
        own = shlex.split(os.environ.get(FLAGS, ""))
        try:
            session.set_flags(*TARGET, f"--iree-input-type={INPUT[file.kind]}", *own)
        except ValueError as error:
            raise Unsupported(
                f"this IREE refuses {FLAGS}={' '.join(own)}", why=" ".join(str(error).split()), do="leave the flag out"
            ) from error
        with heard() as told:
            _ = session.context  # makes Python the owner of the context, so that the program exported below can be imported again
            steps = session.invocation()
            steps.enable_console_diagnostics()
            with clock.phase("parse"):
                parsed = steps.parse_source(
                    api.Source.wrap_buffer(session, content if content.startswith(programs.BYTECODE) else content + b"\0")
                )
            if not parsed:
                if "not found for custom op" in (words := told()) or "does not implement the bytecode interface" in words:
                    raise Unsupported("this IREE does not have the program's dialects", why=first_error(words), do="export it without them")
                do = CUT if is_cut(words) else ADVICE[file.form == "text"]
                raise SteelyardError("IREE cannot read the program", why=first_error(words), do=do)
            program = steps.export_module()
            shown = program.get_asm(large_elements_limit=SHOWN, large_resource_limit=SHOWN, print_generic_op_form=True)
            programs.refuse(
                [*programs.strange_names(shown), *programs.host_calls(shown)], file.allowed, "uses what is not known to compute:"
            )
            steps.import_module(program)
            with clock.phase("compile"):
                compiled = steps.execute()
            if not compiled:
                why = first_error(told())
                kind = Unsupported if re.search(UNKNOWN, why) else SteelyardError
                raise kind("IREE cannot compile the program", why=why)
            made = api.Output.open_membuffer()
            try:
                steps.output_vm_bytecode(made)
            except ValueError as error:
                raise SteelyardError("IREE wrote no code for the program", why=first_error(told() or str(error))) from error
            return bytes(made.map_memory())

    def _device(self) -> Any:
        """Return the CPU with as many workers as the case has threads; with one thread only the calling thread works."""
        wanted = (f"--task_topology_max_group_count={self.threads}", *shlex.split(os.environ.get(RUNTIME_FLAGS, "")))
        if not _runtime_told:
            with heard() as told:
                try:
                    iree.runtime.flags.parse_flags(*wanted)
                except (ValueError, RuntimeError) as error:
                    why = first_error(told() or str(error))
                    raise Unsupported(f"IREE's runtime refuses {' '.join(wanted)}", why=why, do=f"change {RUNTIME_FLAGS}") from error
            _runtime_told.append(wanted)
        own_topology = any("task_topology" in word for word in wanted[1:])
        return iree.runtime.get_device("local-sync" if self.threads == 1 and not own_topology else "local-task")

    def _held(self) -> Mapping[str, float]:
        found = self.config.device.allocator.statistics
        return {"runtime_peak_memory": float(found["device_bytes_peak"])} if "device_bytes_peak" in found else {}

    def place(self, data: np.ndarray[Any, Any]) -> Any:
        if self._program is None:
            return data
        return iree.runtime.asdevicearray(self.config.device, data)

    def read(self, value: Any) -> np.ndarray[Any, Any] | None:
        if isinstance(value, iree.runtime.DeviceArray):
            return np.asarray(value.to_host())
        return super().read(value)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        found = self.read(value)
        return super().copy(value, buffers) if found is None else self.place(np.array(found))

    def versions(self) -> dict[str, str]:
        own = {name: version(name) for name in ("iree-base-compiler", "iree-base-runtime")}
        return {**own, "numpy": np.__version__, "python": platform.python_version()}


def _phase_text(content: bytes, kind: str, phase: str) -> str:
    """Return the program's text after a phase of IREE's compiler, without the values of its weights."""
    own = [*TARGET, *shlex.split(os.environ.get(FLAGS, "")), f"--compile-to={phase}", *ELIDING]
    try:
        made = tools.compile_str(content, input_type=INPUT[kind], extra_args=own)
    except tools.CompilerToolError as error:
        raise SteelyardError(f"IREE cannot print the program after its phase {phase}", why=first_error(str(error))) from error
    return bytes(made).decode("utf-8", "replace")


def _entry(module: Any, asked: str) -> str:
    names = [name for name in module.function_names if not name.startswith("__")]
    if asked in names:
        return asked
    if len(names) != 1:
        raise SteelyardError(f"the program has no function {asked}", why=f"it has {', '.join(names) or 'none'}")
    return str(names[0])


def _signature(module: Any, entry: str) -> ProgramSignature:
    declared = module.lookup_function(entry).reflection.get("iree.abi.declaration", "")
    found = signature_in(declared, entry)
    if found is None:
        raise SteelyardError("IREE does not report the program's signature", why=declared[:200] or "it has no declaration")
    return found


BACKEND = Iree
