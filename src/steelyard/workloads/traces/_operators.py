"""Finds the operator of a node's schema: an overload of the dispatcher, looked up in the same tables as operators of a configuration.

A trace may come from anywhere. Operators that name files, libraries, storages or streams are not in these tables, and operators of other
libraries are found only if the user named the library to import.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from steelyard.errors import Unsupported, UsageError
from steelyard.traces.nodes import TraceNode
from steelyard.workloads.operators import _aten

OWN = frozenset({"aten", "quantized", "mkldnn", "onednn", "sparse"})
"""Namespaces of torch whose operators compute; operators of its other namespaces register, profile or communicate."""
TORCHS = OWN | {
    "prims", "symm_mem", "_quantized", "static_runtime", "c10d", "_c10d_functional", "_c10d_functional_autograd", "inductor", "profiler",
    "_test", "mkldnn_prepacked", "mkl", "quantization", "debugprims", "rngprims", "_native", "inductor_prims", "debug_mode_ops", "export",
    "_dtensor", "prim", "dist", "bundled",
}  # fmt: skip
"""All namespaces of torch itself."""
BETWEEN = "c10d::"
"""Prefix of the schema of calls between ranks."""
COMPOSITE = "CompositeImplicitAutograd"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NAME = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?")


class NotReplayed(Exception):
    """An operator is not called; the message is the reason."""


@dataclass(frozen=True)
class FoundOperator:
    """An overload in this build of torch: what to call, its schema, and the packet of overloads it belongs to."""

    name: str
    call: Any
    schema: Any
    packet: Any
    with_grad: bool = False
    """Whether gradients are enabled during the call; some operators of a training step depend on that."""

    @functools.cached_property
    def views(self) -> bool:
        """Whether the operator returns a view of its input."""
        return any(item.alias_info is not None and not item.alias_info.is_write for item in self.schema.returns)

    @functools.cached_property
    def written(self) -> tuple[str, ...]:
        """The arguments that the operator writes to."""
        return tuple(item.name for item in self.schema.arguments if item.alias_info is not None and item.alias_info.is_write)


@dataclass(frozen=True)
class KnownOperators:
    """The operators that a replay may call: those of torch that compute, and those of libraries that the user named to import."""

    brought: frozenset[str] = frozenset()
    between: Mapping[int, FoundOperator] = field(default_factory=dict)
    """Calls between ranks, by node; empty if a single process replays."""
    kernel: Callable[[TraceNode], FoundOperator] | None = None
    """Finds a Triton kernel, if the user's consent and the machine are known."""

    @classmethod
    def after(cls, modules: Sequence[str], kernel: Callable[[TraceNode], FoundOperator] | None = None) -> KnownOperators:
        """Import the modules that the user named, and allow the operators they register; a missing module is unsupported."""
        for name in modules:
            if not _MODULE.fullmatch(name):
                raise UsageError(f"not the name of a module: {name!r:.80}", do="write it as Python imports it, such as fbgemm_gpu")
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise Unsupported(
                    f"module {name} cannot be imported", why=str(error), do="install it, or leave it out of imports"
                ) from error
        spaces = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()} if modules else set()
        return cls(frozenset(spaces - TORCHS), kernel=kernel)

    def find(self, node: TraceNode) -> FoundOperator:
        """Return the operator of a node, or raise NotReplayed with the reason."""
        if node.id in self.between:
            return self.between[node.id]
        if node.is_communication or node.schema.startswith(BETWEEN):
            raise NotReplayed("a collective: a single process replays none" if not self.between else "a collective that we do not know")
        if node.is_triton:
            if self.kernel is None:
                raise NotReplayed("a Triton kernel: its source is code, which is not run")
            return self.kernel(node)
        return self._found(node.overload)

    def composite(self, node: TraceNode) -> bool:
        """Whether an operator consists only of the operators inside it."""
        if node.is_communication or node.is_triton or node.schema.startswith(BETWEEN):
            return False
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(node.overload, COMPOSITE))

    def _found(self, text: str) -> FoundOperator:
        parts = _NAME.fullmatch(text)
        if parts is None:
            raise NotReplayed("its schema names no operator")
        space, base, overload = parts[1], parts[2], parts[3] or ""
        if space not in OWN and space not in self.brought:
            raise NotReplayed(f"operators of {space} are called only if the module that registers them is named in imports")
        return _lookup(space, base, overload)


@functools.lru_cache(maxsize=8192)
def _lookup(space: str, base: str, overload: str) -> FoundOperator:
    name = f"{space}::{base}"
    if space == "aten":
        if base not in _aten.overloads():
            raise NotReplayed(
                "it is not in this build of torch" if not _exists(name, overload) else "it is not allowed: it does not compute"
            )
        schema = _aten.overloads()[base].get(overload)
        if schema is None:
            raise NotReplayed(
                "it is not in this build of torch" if not _exists(name, overload) else "it is not allowed: it names a file or a storage"
            )
    else:
        if not _exists(name, overload):
            raise NotReplayed("it is not in this build of torch")
        schema = torch._C._get_schema(name, overload)
        if not harmless(schema):
            raise NotReplayed("it is not allowed: it names a file, a storage or an object")
    packet = getattr(getattr(torch.ops, space), base)
    found = getattr(packet, overload or "default")
    return FoundOperator(f"{name}.{overload}" if overload else name, getattr(found, "_op", found), schema, packet)


def harmless(schema: Any) -> bool:
    """Whether a schema takes only tensors and numbers."""
    words = [str(argument.type) for argument in schema.arguments]
    named = any(argument.name in _aten.NAMES_OF_FILES for argument in schema.arguments)
    return not named and not any(far in word for word in words for far in _aten.OUT_OF_REACH)


def _exists(name: str, overload: str) -> bool:
    full = f"{name}.{overload}" if overload else name
    return full in _all_names()


@functools.cache
def _names_at(count: int) -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


def _all_names() -> frozenset[str]:
    return _names_at(len(torch._C._dispatch_get_all_op_names()))


def fitted(node: TraceNode, found: FoundOperator) -> list[tuple[str, int, bool]]:
    """Return the arguments of a recorded call as the operator takes them here: name, place in the recording, and whether by name.

    Another version of torch may have more arguments or fewer: an argument that it lacks must have been recorded with its default.
    """
    if node.is_triton:
        return [(item.name, place, False) for place, item in enumerate(found.schema.arguments)]
    recorded = _recorded_schema(node.schema)
    here = {item.name: item for item in found.schema.arguments}
    taken = []
    if len(node.inputs) > len(recorded):
        raise NotReplayed(f"it was recorded with {len(node.inputs)} arguments, and its schema has {len(recorded)}")
    for place, argument in enumerate(recorded[: len(node.inputs)]):
        item = here.pop(argument.name, None)
        if item is not None:
            taken.append((argument.name, place, bool(item.kwarg_only)))
        elif not argument.has_default_value() or node.inputs[place].value not in (argument.default_value, None):
            raise NotReplayed(f"it takes no {argument.name} in this build of torch")
    missing = [name for name, item in here.items() if not item.has_default_value()]
    if missing:
        raise NotReplayed(f"it was recorded without {', '.join(missing)}, which this build of torch requires")
    places = {name: place for name, place, _ in taken}
    ordered, gap = [], False
    for item in found.schema.arguments:
        if item.name in places:
            ordered.append((item.name, places[item.name], bool(item.kwarg_only) or gap))
        else:
            gap = True
    return ordered


@functools.lru_cache(maxsize=8192)
def _recorded_schema(text: str) -> list[Any]:
    try:
        return list(torch._C.parse_schema(text).arguments)
    except RuntimeError as error:
        raise NotReplayed(f"its schema cannot be read: {str(error).strip().splitlines()[0][:120]}") from None


def in_order(taken: Iterable[tuple[str, int, bool]]) -> tuple[list[int], dict[str, int]]:
    """Return the places of the positional arguments, and the places of the arguments that are passed by name."""
    items = list(taken)
    return [place for _, place, named in items if not named], {name: place for name, place, named in items if named}
