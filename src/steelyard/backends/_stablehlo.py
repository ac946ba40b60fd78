"""StableHLO as jaxlib's MLIR reads it: text, bytecode, VHLO and HLO become one module, with a known signature and no host calls."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib import lapack, xla_client
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from steelyard.artifacts import programs
from steelyard.artifacts.signature import ProgramSignature, signature_in
from steelyard.backends._programs import CUT, ProgramFile, first_error, is_cut
from steelyard.errors import SteelyardError

SPELT_OUT = "builtin.module(func.func(stablehlo-legalize-deprecated-ops,chlo-legalize-to-stablehlo))"
"""StableHLO's own passes that replace deprecated and CHLO operations with ones that the interpreter supports."""
SHOWN = 8
"""How many values of a constant are printed where only the rest of the text matters."""


@dataclass(frozen=True)
class StableProgram:
    """A module in a context of its own."""

    module: Any
    context: Any
    entry: str
    signature: ProgramSignature

    def bytecode(self) -> bytes:
        """Return the module as bytecode for a compiler."""
        buffer = io.BytesIO()
        self.module.operation.write_bytecode(buffer)
        return buffer.getvalue()

    def spelt_out(self) -> StableProgram:
        """Return the program without CHLO and deprecated operations, which the reference interpreter does not support."""
        with self.context, ir.Location.unknown():
            stablehlo.register_stablehlo_passes()
            module = ir.Module.parse(self.bytecode())
            passmanager.PassManager.parse(SPELT_OUT).run(module.operation)
        return replace(self, module=module)

    def interpreted(self, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Return the outputs of the reference interpreter, which follows the StableHLO specification operation by operation."""
        with self.context, ir.Location.unknown():
            module = ir.Module.parse(self.bytecode())
            narrow = _widened(module, self.entry)
            answers = stablehlo.eval_module(module, [_attribute(value) for value in inputs])
            wanted = [str(kind) for kind in narrow]
            return [_restored(np.array(answer), kind) for answer, kind in zip(answers, wanted, strict=True)]


def understood(file: ProgramFile) -> StableProgram:
    """Return a StableHLO or HLO program as a module; a program that calls the host or lacks its weights is refused."""
    content = programs.read(file.path)
    context = jax_mlir.make_ir_context() if hasattr(jax_mlir, "make_ir_context") else _context()
    try:
        with context:
            module = _module(content, file)
    except (ir.MLIRError, ValueError, jax.errors.JaxRuntimeError) as error:
        do = CUT if is_cut(str(error)) else _advice(file)
        raise SteelyardError("the program cannot be read", why=first_error(str(error)), do=do) from error
    shown = module.operation.get_asm(large_elements_limit=SHOWN, large_resource_limit=SHOWN)
    programs.refuse(programs.host_calls(shown), file.allowed, "calls")
    if "lapack_" in shown:
        lapack.prepare_lapack_call("geqrf_ffi", np.float32)
    entry = file.entry if signature_in(shown, file.entry) else "main"
    signature = signature_in(shown, entry)
    if signature is None:
        raise SteelyardError(f"the program has no function {file.entry}")
    return StableProgram(module, context, entry, signature)


def _context() -> Any:
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def _advice(file: ProgramFile) -> str:
    if file.form == "text":
        return "text can only be read by the version that wrote it: export bytecode or VHLO, which other versions read too"
    return "use an environment with the version that wrote it, or export it again"


def _module(content: bytes, file: ProgramFile) -> Any:
    if file.kind == "xla_hlo_dump":
        text = content.decode("utf-8", "replace")
        programs.refuse_elided(text)
        found = xla_client.hlo.hlo_module_from_text(text) if hasattr(xla_client, "hlo") else xla_client._xla.hlo_module_from_text(text)
        made = xla_client._xla.mlir.hlo_to_stablehlo(found.as_serialized_hlo_module_proto())
        return ir.Module.parse(made)
    if content.startswith(programs.BYTECODE):
        if file.form == "vhlo" or b"vhlo\0" in content:
            return stablehlo.deserialize_portable_artifact(ir.Context.current, content)
        module = ir.Module.parse(content)
        if "dense_resource" not in module.operation.get_asm(large_elements_limit=SHOWN, large_resource_limit=SHOWN):
            return module
        content = str(module).encode()
    text = content.decode("utf-8", "replace")
    programs.refuse_elided(text)
    return ir.Module.parse(programs.with_constants(text))


def _attribute(value: np.ndarray[Any, Any]) -> Any:
    whole = np.ascontiguousarray(value).reshape(value.shape)
    if value.dtype.name == "bfloat16":
        return ir.DenseElementsAttr.get(whole.view(np.uint16), type=ir.RankedTensorType.get(value.shape, ir.BF16Type.get()))
    return ir.DenseElementsAttr.get(whole)


def _widened(module: Any, entry: str) -> list[Any]:
    """Make the function return fp32 where numpy cannot read the output format, and return the original formats."""
    function = next(op for op in module.body.operations if getattr(op, "name", None) and str(op.name).strip('"') == entry)
    block = function.regions[0].blocks[0]
    final = block.operations[len(block.operations) - 1]
    had, now = [], []
    wide = ir.F32Type.get()
    with ir.InsertionPoint(final):
        for number, value in enumerate(final.operands):
            kind = ir.RankedTensorType(value.type)
            had.append(kind.element_type)
            if isinstance(kind.element_type, ir.BF16Type):
                value = stablehlo.convert(ir.RankedTensorType.get(kind.shape, wide), value)
                final.operands[number] = value
            now.append(value.type)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([item.type for item in block.arguments], now))
    return had


def _restored(value: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    if kind != "bf16":
        return value
    import ml_dtypes

    return value.astype(ml_dtypes.bfloat16)
