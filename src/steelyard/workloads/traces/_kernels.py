"""Triton kernels of a trace: Python source beside it, which is loaded only if the user allowed the kernel by name.

Inductor writes each kernel as a separate module, and PyTorch's recorder copies it into the trace's resources under the name in the
node's `kernel_file`. The node's inputs are the kernel's arguments, in older traces the grid, and the stream. The tensors that a kernel
writes to are among its arguments: no operator made their memory, so the replay makes it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

import torch

from steelyard import files
from steelyard.errors import told
from steelyard.traces.nodes import TraceArgument, TraceNode
from steelyard.workloads.traces._operators import FoundOperator, NotReplayed

PREFIX = "triton:"
LONGEST = 160
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
_TYPES = {"tensor": "Tensor(a{0}!)", "int": "int", "float": "float", "bool": "bool", "str": "str", "none": "int?"}


@dataclass(frozen=True)
class TritonKernels:
    """Where the kernels of a trace are, which of them the user allowed, and the device to run them on."""

    resources: Path | None = None
    allowed: frozenset[str] = frozenset()
    device: str = "cpu"

    @classmethod
    def of(cls, resources: Path | None, allow: Sequence[str], device: str) -> TritonKernels:
        """Read the allowed kernels from the words of `--allow`; words for other workloads are skipped."""
        return cls(resources, frozenset(word.removeprefix(PREFIX) for word in allow if word.startswith(PREFIX)), device)

    def find(self, node: TraceNode) -> FoundOperator:
        """Return a kernel that can be called, or raise NotReplayed with the reason. Its source runs only after all checks."""
        if node.name not in self.allowed:
            word = shlex.quote(f"{PREFIX}{node.name}") if node.name.isprintable() else ""
            how = f"--allow {word}" if word else "--allow (not possible, as its name has characters that cannot be printed)"
            raise NotReplayed(f"a Triton kernel, whose source is code: read {self._told(node)}, and allow it with {how}")
        if torch.device(self.device).type != "cuda":
            raise NotReplayed(f"a Triton kernel, which runs on a GPU and not on {self.device}")
        if importlib.util.find_spec("triton") is None:
            raise NotReplayed("a Triton kernel, and triton is not installed here")
        path = self._source(node)
        return FoundOperator(f"{PREFIX}{node.name}", _launch(path, node.name, self.device), schema_of(node), None)

    def _told(self, node: TraceNode) -> str:
        """Return where the source is, for a message; "it" if that is unknown."""
        return f"{self.resources.name}/{node.kernel_file}" if self.resources and _FILE.fullmatch(node.kernel_file) else "it"

    def _source(self, node: TraceNode) -> Path:
        if not _FILE.fullmatch(node.kernel_file):
            raise NotReplayed("a Triton kernel whose recorded file name is not valid for a file beside the trace")
        if self.resources is None:
            raise NotReplayed("a Triton kernel, and the trace has no resources, which are a folder beside it named …_resources")
        path = self.resources / node.kernel_file
        if not path.is_file() or path.is_symlink():
            raise NotReplayed(f"a Triton kernel whose source {node.kernel_file} is not among the trace's resources")
        return path


def schema_of(node: TraceNode) -> Any:
    """Return a schema for the kernel's arguments, with our names: every tensor may be written to, and nothing is returned."""
    given = arguments(node)
    types = [_TYPES.get(item.kind) for item in given]
    if None in types:
        strange = next(item.recorded for item, word in zip(given, types, strict=True) if word is None)
        raise NotReplayed(f"a Triton kernel with an argument of type {strange[:40]}")
    text = ", ".join(f"{word.format(place)} a{place}" for place, word in enumerate(types) if word)
    return torch._C.parse_schema(f"triton::kernel({text}) -> ()")


def arguments(node: TraceNode) -> tuple[TraceArgument, ...]:
    """Return the kernel's own arguments: the recorder adds the stream after them, and an older recorder the grid before the stream."""
    given = node.inputs[:-1]
    return given[:-1] if given and given[-1].kind == "str" else given


def _launch(path: Path, name: str, device: str) -> Callable[..., None]:
    """Load the source and return a function that launches the kernel on the current stream; a loading error becomes the reason."""
    kernel = loaded(path, name)
    index, stream_of = torch.device(device).index or 0, torch._C._cuda_getCurrentRawStream

    def launch(*given: Any) -> None:
        kernel.run(*given, stream=stream_of(index))

    return launch


class SourceOnly(SourceFileLoader):
    """Loads the source that the user read, never compiled code beside it."""

    def get_code(self, fullname: str) -> Any:
        """Compile the source."""
        return self.source_to_code(self.get_data(self.path), self.path)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder to load sources from: the compiler writes files beside them, and files beside a trace are part of its identity."""
    return tempfile.TemporaryDirectory(prefix="steelyard-kernels-")


def loaded(path: Path, name: str) -> Any:
    """Return the kernel in a module: the object with its name, or the only one that can be launched."""
    mark = files.sha256(path)
    module_name = f"steelyard_trace_kernel_{mark}"
    if module_name not in sys.modules:
        copy = Path(_folder().name) / mark[:16] / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
        loader = SourceOnly(module_name, str(copy))
        module = importlib.util.module_from_spec(ModuleSpec(module_name, loader, origin=str(copy)))
        module.__file__ = str(copy)
        try:
            loader.exec_module(module)
        except Exception as error:
            raise NotReplayed(f"a Triton kernel whose source cannot be loaded: {told(error, LONGEST)}") from None
        sys.modules[module_name] = module
    module = sys.modules[module_name]
    objects = [item for item in vars(module).values() if not isinstance(item, type)]
    found = [item for item in objects if callable(getattr(item, "run", None)) and hasattr(item, "launchers")]
    own = getattr(module, name, None)
    if any(item is own for item in found):
        return own
    if len(found) != 1:
        raise NotReplayed(f"a Triton kernel whose source has {len(found)} kernels, and none is called {name[:60]}")
    return found[0]
