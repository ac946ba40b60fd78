"""Exporters for PyTorch: torch.export and ONNX with torch itself; StableHLO, linalg and TOSA with torch-mlir."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts.arrays import BITS
from steelyard.errors import SteelyardError
from steelyard.exporters.subjects import Exportable, HostArray, split
from steelyard.model.task import Task

_RESOURCE = re.compile(r"^\s+([\w.$-]+): \"0x([0-9A-Fa-f]*)\",?$", re.MULTILINE)
_DICTIONARY = "\n{-#\n"
ALIGNMENT = 8
"""Number of hex digits before the data of a resource; they encode its alignment."""


def prepare(task: Task, be: Any) -> Exportable:
    """Return a PyTorch task as a module that contains its weights and takes its inputs."""
    import torch

    given, arguments = split(task, lambda value: isinstance(value, torch.Tensor))
    fn: Any = task.fn

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = fn if isinstance(fn, torch.nn.Module) else _owner(fn)
            for number, item in enumerate(task.parameters):
                if not isinstance(fn, torch.nn.Module) and self.inner is None:
                    self.register_buffer(f"weight_{number}", item.detach())

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            args, kwargs = arguments(*inputs)
            return tuple(_leaves(fn(*args, **kwargs)))

    module = Exported().eval().requires_grad_(False)

    def call(*inputs: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            found: tuple[Any, ...] = module(*inputs)
            return found

    return Exportable(call, tuple(item.detach() for item in given), host, task, be, module)


def _owner(fn: Any) -> Any:
    """Return the module that a method belongs to, or None."""
    import torch

    holder = getattr(fn, "__self__", None)
    return holder if isinstance(holder, torch.nn.Module) else None


def _leaves(value: Any) -> Iterator[Any]:
    import torch

    found = torch.utils._pytree.tree_leaves(value)
    yield from (item for item in found if isinstance(item, torch.Tensor))


def host(value: Any) -> tuple[str, HostArray]:
    """Return the format and the data of a tensor."""
    import torch

    from steelyard.backends.torch import FORMATS

    dtype = next((name for name, kind in FORMATS.items() if kind == value.dtype), str(value.dtype).removeprefix("torch."))
    plain = value.detach().cpu().contiguous()
    if dtype in BITS:
        return dtype, plain.view(torch.uint16 if value.element_size() == 2 else torch.uint8).numpy()
    return dtype, np.asarray(plain.numpy())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings, because exporters warn about their own internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _program(subject: Exportable) -> Any:
    import torch

    if "program" not in subject.kept:
        with _quiet(), torch.no_grad():
            subject.kept["program"] = torch.export.export(subject.module, subject.inputs)
    return subject.kept["program"]


def exported(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write the graph of torch.export with its weights, as torch saves it."""
    import torch

    with _quiet():
        torch.export.save(_program(subject), path)
    return {"wrote": f"torch {torch.__version__}", "entry": "forward"}


def onnx(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write ONNX with its weights in one file."""
    import torch

    outputs = [f"output_{number}" for number in range(len(subject.call(*subject.inputs)))]
    with _quiet(), torch.no_grad():
        made = torch.onnx.export(
            subject.module,
            subject.inputs,
            dynamo=True,
            input_names=subject.input_names,
            output_names=outputs,
            verbose=False,
            optimize=False,
        )
        assert made is not None
        made.save(path, external_data=False)
    return {"wrote": f"onnxscript {version('onnxscript')}, torch {torch.__version__}", "entry": "main_graph"}


def _lowered(subject: Exportable, output: str) -> Any:
    from torch_mlir import fx

    with _quiet():
        return fx.export_and_import(_program(subject), output_type=output, func_name="main")


def _wrote() -> str:
    return f"torch-mlir {version('torch-mlir')}"


def linalg(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write linalg on tensors as bytecode."""
    return _bytecode(_lowered(subject, "linalg-on-tensors"), path)


def tosa(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write TOSA as bytecode, because its text changes with every version."""
    return _bytecode(_lowered(subject, "tosa"), path)


def _bytecode(module: Any, path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        module.operation.write_bytecode(file)
    return {"wrote": _wrote()}


def stablehlo_text(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO text with its weights where they are used, because XLA does not read weights at the end of the file."""
    path.write_text(_stablehlo(subject), encoding="utf-8")
    return {"wrote": _wrote()}


def stablehlo_bytecode(subject: Exportable, path: Path, kind: str) -> dict[str, Any]:
    """Write StableHLO as bytecode, with its weights where they are used."""
    from torch_mlir import ir

    with subject.kept["stablehlo_context"] if _stablehlo(subject) else contextlib.nullcontext():
        return _bytecode(ir.Module.parse(_stablehlo(subject)), path)


def _stablehlo(subject: Exportable) -> str:
    if "stablehlo" not in subject.kept:
        module = _lowered(subject, "stablehlo")
        subject.kept["stablehlo_context"] = module.context
        subject.kept["stablehlo"] = inlined(str(module))
    found: str = subject.kept["stablehlo"]
    return found


def inlined(text: str) -> str:
    """Return the program with its weights where they are used, instead of names of resources at its end.

    Constants of the dialect arith, which XLA does not read in StableHLO, become StableHLO constants.
    """
    program, sign, resources = text.partition(_DICTIONARY)
    held = {found[1]: found[2][ALIGNMENT:] for found in _RESOURCE.finditer(resources)} if sign else {}

    def value(found: re.Match[str]) -> str:
        if found[1] not in held:
            raise SteelyardError(f"the program has no weight {found[1]}", why="torch-mlir left it out when it was printed")
        return f'dense<"0x{held[found[1]]}">' if held[found[1]] else "dense<>"

    made = re.sub(r"dense_resource<([\w.$-]+)>", value, program)
    made = re.sub(r"arith\.constant (dense<[^>]*> : tensor<)", r"stablehlo.constant \1", made)
    return made if made.endswith("\n") else made + "\n"
