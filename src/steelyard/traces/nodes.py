"""The content of a trace: nodes with their arguments, tensors by tensor and storage id, and the time of each node if known."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from steelyard.errors import UsageError

DTYPES: Mapping[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "half": "float16", "c10::BFloat16": "bfloat16",
    "bfloat16": "bfloat16", "signed char": "int8", "char": "int8", "unsigned char": "uint8", "byte": "uint8", "short": "int16",
    "short int": "int16", "int": "int32", "long": "int64", "long int": "int64", "long long": "int64", "bool": "bool",
    "unsigned short": "uint16", "short unsigned int": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
    "long unsigned int": "uint64", "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz", "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
}  # fmt: skip
"""PyTorch's Python names of element types, by the C++ names that it records."""
SIZES: Mapping[str, int] = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "complex64": 8, "complex128": 16, "complex32": 4,
}  # fmt: skip
SCALARS: Mapping[str, str] = {
    "Int": "int", "SymInt": "int", "Double": "float", "SymFloat": "float", "Float": "float", "Bool": "bool", "SymBool": "bool",
    "String": "str", "Device": "device", "None": "none", "Generator": "generator",
}  # fmt: skip
UNDEFINED = "undefined"
DEEPEST_TYPE = 20
LARGEST = 2**64
COMMUNICATION = "record_param_comms"
PROCESS_GROUPS = "## process_group:init ##"
STEP = "ProfilerStep#"
TRITON = "triton"
_NUMBERS = re.compile(r"[+-]?(inf|nan|infinity|[0-9.]+(e[+-]?[0-9]+)?)", re.IGNORECASE)


class BadTrace(UsageError):
    """A trace cannot be read: broken, cut off, of an unknown schema, or with a node that makes no sense."""


@dataclass(frozen=True)
class TensorRef:
    """A tensor as a node saw it; two with one `storage` share memory, `offset` is in elements, `strides` are None in old traces.

    `dtype` is PyTorch's name, or the recorded type if that is unknown; `device` is empty in traces that do not record it.
    """

    tensor: int
    storage: int
    offset: int
    numel: int
    itemsize: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def defined(self) -> bool:
        """Whether the tensor exists: an operator may take one that was never made."""
        return self.dtype != UNDEFINED

    @property
    def extent(self) -> int:
        """How many elements of its storage the tensor spans, from its offset on."""
        if not self.shape or self.strides is None:
            return math.prod(self.shape)
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class TraceArgument:
    """One argument or result: `kind` is tensor, list, tuple, int, float, bool, str, device, none, generator or other.

    `value` is a TensorRef, a tuple of arguments, or the plain value; `recorded` is the type as written in the trace.
    """

    kind: str
    value: Any
    recorded: str = ""

    def tensors(self) -> Iterator[TensorRef]:
        """Yield the tensors in the argument, in order."""
        if isinstance(self.value, TensorRef):
            if self.value.defined:
                yield self.value
        elif isinstance(self.value, tuple):
            for item in self.value:
                yield from item.tensors()


@dataclass(frozen=True)
class Ports:
    """The inputs or outputs of a node as recorded: a value, a shape and a type each, with strides if the schema has them."""

    values: Sequence[Any] = ()
    shapes: Sequence[Any] = ()
    types: Sequence[str] = ()
    strides: Sequence[Any] | None = None

    def arguments(self) -> tuple[TraceArgument, ...]:
        """The arguments that these ports describe; a BadTrace names the invalid one."""
        found = []
        for place, (value, shape, text) in enumerate(zip(self.values, self.shapes, self.types, strict=True)):
            strides = self.strides[place] if self.strides is not None else None
            try:
                found.append(_argument(parse_type(text), value, shape, strides))
            except BadTrace as error:
                raise BadTrace(f"[{place}]: {error.what}", why=error.why) from None
        return tuple(found)


@dataclass(frozen=True)
class NodeTime:
    """When and how long a node ran, in seconds, from a profiler's trace of the same step; `own` is without its children.

    `kernels` is the time of the device's kernels that the node launched itself, without those of its children.
    """

    start: float
    duration: float
    own: float
    kernels: float = 0.0
    stream: int | None = None


@dataclass(frozen=True)
class TraceNode:
    """One recorded event: an operator, a label around others, a thread, or, in linked traces, a kernel on the device.

    `parent` is the node that it ran inside; the root is its own parent. `attributes` are those that have no field here.
    """

    id: int
    name: str
    parent: int
    schema: str = ""
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    kernel_backend: str = ""
    kernel_file: str = ""
    tensor_ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    input_ports: Ports = field(default_factory=Ports, repr=False)
    output_ports: Ports = field(default_factory=Ports, repr=False)
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    time: NodeTime | None = None
    on_device: bool = False

    @cached_property
    def inputs(self) -> tuple[TraceArgument, ...]:
        """The arguments in the order of the schema; a BadTrace names the node and the argument."""
        return self._arguments("inputs", self.input_ports)

    @cached_property
    def outputs(self) -> tuple[TraceArgument, ...]:
        """The results of the node."""
        return self._arguments("outputs", self.output_ports)

    def _arguments(self, name: str, ports: Ports) -> tuple[TraceArgument, ...]:
        try:
            return ports.arguments()
        except BadTrace as error:
            raise BadTrace(f"node {self.id} ({self.name[:60]}): {name}{error.what}", why=error.why) from None

    @property
    def is_communication(self) -> bool:
        """Whether the node is a collective or a message between processes."""
        return self.name == COMMUNICATION

    @property
    def is_triton(self) -> bool:
        """Whether the node is a Triton kernel, whose source is in the trace's resources."""
        return self.kernel_backend == TRITON

    @property
    def is_operator(self) -> bool:
        """Whether the node can be called again; every other node is a label around such nodes."""
        return self.is_communication or self.is_triton or (bool(self.schema) and not self.schema.startswith("c10d::"))

    @property
    def overload(self) -> str:
        """The operator with its overload, such as `aten::add.Tensor`; the node's name if it has no schema."""
        return self.schema.partition("(")[0].strip() or self.name


@dataclass(frozen=True)
class TypeWord:
    """A parsed type: `GenericList[Tensor(float),None]` is a list of two."""

    word: str
    dtype: str = ""
    items: tuple[TypeWord, ...] | None = None


@functools.lru_cache(maxsize=4096)
def parse_type(text: str) -> TypeWord:
    """Parse a recorded type."""
    found, end = _type_at(text, 0, 0)
    if end != len(text):
        raise BadTrace(f"the type {text[:80]!r} cannot be read")
    return found


def _type_at(text: str, start: int, depth: int) -> tuple[TypeWord, int]:
    if depth > DEEPEST_TYPE:
        raise BadTrace(f"a type is nested more than {DEEPEST_TYPE} deep")
    end = start
    while end < len(text) and text[end] not in "[](),":
        end += 1
    word = text[start:end].strip()
    if text[end : end + 1] == "(":
        close = _closing(text, end)
        return TypeWord(word, text[end + 1 : close]), close + 1
    if text[end : end + 1] != "[":
        return TypeWord(word), end
    items: list[TypeWord] = []
    place = end + 1
    while text[place : place + 1] != "]":
        item, place = _type_at(text, place, depth + 1)
        items.append(item)
        if text[place : place + 1] == ",":
            place += 1
        elif text[place : place + 1] != "]":
            raise BadTrace(f"the type {text[:80]!r} is cut off")
    return TypeWord(word, items=tuple(items)), place + 1


def _closing(text: str, start: int) -> int:
    """The place that closes the parenthesis at `start`: `Tensor(nullptr (uninitialized))` has others inside."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    raise BadTrace(f"the type {text[:80]!r} is cut off")


def _argument(kind: TypeWord, value: Any, shape: Any, strides: Any) -> TraceArgument:
    if kind.word == "Tensor":
        return TraceArgument("tensor", _tensor(kind.dtype, value, shape, strides), kind.dtype)
    if kind.items is not None or kind.word in ("GenericList", "Tuple"):
        return _sequence(kind, value, shape, strides)
    meaning = SCALARS.get(kind.word, "other")
    return TraceArgument(meaning, _plain(meaning, value), kind.word)


def _sequence(kind: TypeWord, value: Any, shape: Any, strides: Any) -> TraceArgument:
    if not isinstance(value, list):
        raise BadTrace(f"the value of a {kind.word} is not a list")
    items = kind.items or ()
    if len(items) != len(value):
        raise BadTrace(f"the value of a {kind.word} of {len(items)} has {len(value)} items")
    shapes = shape if isinstance(shape, list) and len(shape) == len(value) else [[]] * len(value)
    inner = strides if isinstance(strides, list) and len(strides) == len(value) else [None if strides is None else []] * len(value)
    parts = tuple(_argument(*part) for part in zip(items, value, shapes, inner, strict=True))
    return TraceArgument("tuple" if kind.word == "Tuple" else "list", parts, kind.word)


def _tensor(dtype: str, value: Any, shape: Any, strides: Any) -> TensorRef:
    """A tensor from its numbers: tensor, storage, offset, elements, element size and, in newer traces, device."""
    if not dtype or dtype.startswith("nullptr"):
        return TensorRef(0, 0, 0, 0, 0, "", UNDEFINED, ())
    if not isinstance(value, list) or len(value) not in (5, 6):
        raise BadTrace("a tensor does not have 5 or 6 numbers", why="tensor, storage, offset, elements, element size, device")
    tensor, storage, offset, numel, itemsize = (count(item, "a tensor's id") for item in value[:5])
    device = value[5] if len(value) == 6 else ""
    if not isinstance(device, str):
        raise BadTrace("a tensor's device is not text")
    sizes = _sizes(shape, "shape")
    steps = None if strides is None else _sizes(strides, "strides")
    if steps is not None and len(steps) != len(sizes):
        raise BadTrace(f"a tensor has {len(sizes)} dimensions and {len(steps)} strides")
    return TensorRef(tensor, storage, offset, numel, itemsize, device, DTYPES.get(dtype, dtype), sizes, steps)


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BadTrace(f"a tensor's {what} is not a list")
    return tuple(count(item, f"a size in a tensor's {what}") for item in value)


def count(value: Any, what: str) -> int:
    """The value if it is a whole number from 0 on that fits 64 bits; raise otherwise."""
    if type(value) is not int or not 0 <= value < LARGEST:
        raise BadTrace(f"{what} is {str(value)[:40] if not isinstance(value, int) else 'negative or too large'}, not a count")
    return value


def _plain(meaning: str, value: Any) -> Any:
    """A single value by its meaning; values that PyTorch could not write are texts in angle brackets."""
    if isinstance(value, str) and value.startswith("<") and value.endswith(">") and meaning != "str":
        return None if meaning in ("none", "generator") else value
    if meaning == "none" or meaning == "generator":
        return None
    if meaning == "float":
        if isinstance(value, str) and _NUMBERS.fullmatch(value):
            return float(value)
        if (type(value) in (int, float) and abs(value) < 10**300) or value in (math.inf, -math.inf) or value != value:
            return float(value)
        raise BadTrace(f"a float is {str(value)[:40]!r}")
    if meaning == "int":
        if type(value) is int and -LARGEST < value < LARGEST:
            return value
        raise BadTrace("an int is not a whole number, or does not fit 64 bits")
    if meaning == "bool":
        if type(value) is bool or value in (0, 1):
            return bool(value)
        raise BadTrace(f"a bool is {str(value)[:40]!r}")
    if meaning in ("str", "device") and not isinstance(value, str):
        raise BadTrace(f"a {meaning} is not text")
    return value
