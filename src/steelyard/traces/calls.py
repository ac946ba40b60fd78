"""Recorded operators as calls that can be repeated: arguments in the grammar of PARAM's configs, and the count of each call."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steelyard.errors import SteelyardError
from steelyard.traces.nodes import SIZES, TensorRef, TraceArgument, TraceNode
from steelyard.traces.steps import Trace

Spec = dict[str, Any]
WORDS = {"float32": "float", "float64": "double", "int32": "int", "int64": "long"}
"""Element types whose name in a config differs from PyTorch's."""
SCALAR_TYPES: Mapping[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
    27: "uint16", 28: "uint32", 29: "uint64", 44: "float8_e8m0fnu",
}  # fmt: skip
LAYOUTS = {0: "strided", 1: "sparse_coo", 2: "sparse_csr", 4: "sparse_csc", 5: "sparse_bsr", 6: "sparse_bsc", 7: "jagged"}
MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last", 3: "channels_last_3d"}
NUMBERED: Mapping[str, tuple[str, Mapping[int, str]]] = {
    "ScalarType": ("dtype", SCALAR_TYPES), "Layout": ("layout", LAYOUTS), "MemoryFormat": ("memory_format", MEMORY_FORMATS),
}  # fmt: skip
"""Types that a trace has as numbers: their names in a config, and the meaning of each number."""
INDEXES: Mapping[str, tuple[int, int, int | None]] = {
    "aten::embedding": (1, 0, 0), "aten::embedding_dense_backward": (1, -1, None), "aten::index_select": (2, 0, None),
    "aten::gather": (2, 0, None), "aten::nll_loss_forward": (1, 0, 1), "aten::nll_loss_nd": (1, 0, 1), "aten::nll_loss": (1, 0, 1),
    "aten::nll_loss_backward": (2, 1, 1), "aten::cross_entropy_loss": (1, 0, 1), "aten::embedding_bag": (1, 0, 0),
    "aten::_embedding_bag": (1, 0, 0), "aten::one_hot": (0, -1, None), "aten::nll_loss2d_forward": (1, 0, 1),
}  # fmt: skip
"""Operators with an argument that indexes another: its place, the place of the other, and the dimension that it indexes."""
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_MOST = 2**63 - 1


class NotACall(SteelyardError):
    """A recorded operator cannot be called from a config; `what` is the reason."""


@dataclass(frozen=True)
class UniqueCall:
    """One operator with one set of arguments: how often a step has it, and its total recorded time in seconds if that is known.

    `spec` is None if it cannot be called from a config; `reason` says why.
    """

    op: str
    spec: Spec | None
    count: int
    recorded: float | None = None
    kernels: float = 0.0
    reason: str = ""
    first: int = 0


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operator's schema."""

    kind: str
    name: str
    default: str
    named: bool


@functools.lru_cache(maxsize=4096)
def parameters(schema: str) -> tuple[Parameter, ...]:
    """The parameters of a schema such as `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`."""
    start = schema.find("(")
    found, named = [], False
    for part in _parted(schema[start + 1 :]) if start >= 0 else ():
        if part == "*":
            named = True
            continue
        text, _, default = part.partition("=")
        kind, _, name = text.rpartition(" ")
        found.append(Parameter(re.sub(r"\([a-z!|>\- *]*\)", "", kind).strip(), name, default, named))
    return tuple(found)


def _parted(text: str) -> Iterator[str]:
    """Yield the parts between commas, up to the parenthesis that closes the list; commas inside brackets do not separate."""
    depth, part = 0, ""
    for letter in text:
        if letter == ")" and not depth:
            break
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    if part.strip():
        yield part.strip()


def spec_of(node: TraceNode) -> Spec:
    """A node's arguments as in a config; raise with the reason if a config cannot express one."""
    if node.is_communication:
        raise NotACall("it is a message between processes")
    if node.is_triton:
        raise NotACall("it is a Triton kernel")
    if not node.schema:
        raise NotACall("it has no schema")
    known = parameters(node.schema)
    if len(known) != len(node.inputs):
        raise NotACall(f"its schema has {len(known)} parameters and {len(node.inputs)} were recorded")
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    tensors = 0
    for place, (parameter, argument) in enumerate(zip(known, node.inputs, strict=True)):
        made = _Arguments(node, place, tensors).spec(argument, parameter.kind)
        tensors += len(list(argument.tensors()))
        if not parameter.named:
            args.append(made)
        elif made["type"] != "none" or parameter.default not in ("None", ""):
            kwargs[parameter.name] = made
    return {"args": args, **({"kwargs": kwargs} if kwargs else {})}


@dataclass
class _Arguments:
    """Describes one argument of a node; `tensor` counts the tensors before it, because ranges are recorded by that count."""

    node: TraceNode
    place: int
    tensor: int

    def spec(self, argument: TraceArgument, kind: str) -> Spec:
        """The description of an argument for a config."""
        if argument.kind == "tensor":
            return self._tensor(argument.value)
        if argument.kind in ("list", "tuple"):
            inner = re.sub(r"\[\d*\]\??$", "", kind)
            items = [self.spec(item, inner) for item in argument.value]
            return {"type": "genericlist" if argument.kind == "list" else "tuple", "value": items}
        if argument.kind in ("none", "generator"):
            return {"type": "none"}
        base = kind.rstrip("?")
        if base in NUMBERED and argument.kind == "int":
            word, names = NUMBERED[base]
            if argument.value not in names:
                raise NotACall(f"{base} {argument.value} has no name")
            return {"type": word, "value": names[argument.value]}
        if argument.kind == "other" or (isinstance(argument.value, str) and argument.value.startswith("<")):
            raise NotACall(f"an argument of type {argument.recorded[:40]} is not recorded")
        if argument.kind == "int" and abs(argument.value) > _MOST:
            raise NotACall("a number does not fit 64 bits")
        if argument.kind == "float" and not math.isfinite(argument.value):
            raise NotACall("a config cannot have a number that is not finite")
        return {"type": {"float": "double"}.get(argument.kind, argument.kind), "value": argument.value}

    def _tensor(self, ref: TensorRef) -> Spec:
        if not ref.defined:
            return {"type": "none"}
        place = self.tensor
        self.tensor += 1
        if ref.dtype not in SIZES:
            raise NotACall(f"a tensor has the unknown type {ref.dtype[:40]}")
        made: Spec = {"type": "tensor", "dtype": WORDS.get(ref.dtype, ref.dtype), "shape": list(ref.shape), "requires_grad": False}
        if ref.strides is not None and not _is_dense(ref):
            made["strides"] = list(ref.strides)
        if ref.dtype in WHOLE:
            made |= self._whole(ref, place)
        return made

    def _whole(self, ref: TensorRef, place: int) -> Spec:
        """How whole numbers are drawn: in the recorded range, so that indices stay valid, or below the size that they index."""
        if recorded := self.node.tensor_ranges.get(place):
            low, high = recorded[0], min(recorded[1], _MOST - 1)
            return {
                "distribution": {"name": "constant", "value": low} if low >= high else {"name": "integers", "low": low, "high": high + 1}
            }
        if bound := self._bound():
            return {"distribution": {"name": "integers", "low": 0, "high": bound}}
        return {"distribution": {"name": "constant", "value": 0}}

    def _bound(self) -> int:
        rule = INDEXES.get(self.node.overload.partition(".")[0])
        if rule is None or rule[0] != self.place:
            return 0
        _, other, dim = rule
        if other < 0:
            values = [int(item.value) for item in self.node.inputs[2:3] if item.kind == "int"]
            return max([0, *values])
        if dim is None:
            numbers = [item.value for item in self.node.inputs if item.kind == "int"]
            dim = int(numbers[0]) if numbers else 0
        pointed = self.node.inputs[other].value
        shape = pointed.shape if isinstance(pointed, TensorRef) else ()
        return int(shape[dim]) if -len(shape) <= dim < len(shape) else 0


def _is_dense(ref: TensorRef) -> bool:
    """Whether a tensor's elements are laid out in memory as in a new tensor of that shape."""
    assert ref.strides is not None
    step = 1
    for size, stride in zip(reversed(ref.shape), reversed(ref.strides), strict=True):
        if size != 1 and stride != step:
            return 0 in ref.shape
        step *= size
    return True


def unique_calls(nodes: Iterable[TraceNode]) -> list[UniqueCall]:
    """Each distinct call once, in the order of first occurrence."""
    found: dict[tuple[str, str], UniqueCall] = {}
    for node in nodes:
        try:
            spec, reason = spec_of(node), ""
        except NotACall as error:
            spec, reason = None, error.what
        key = (node.overload, json.dumps(spec) if spec is not None else reason)
        time = node.time.duration if node.time else None
        kernels = node.time.kernels if node.time else 0.0
        before = found.get(key)
        if before is None:
            found[key] = UniqueCall(node.overload, spec, 1, time, kernels, reason, node.id)
        else:
            both = before.recorded + time if before.recorded is not None and time is not None else None
            found[key] = replace(before, count=before.count + 1, recorded=both, kernels=before.kernels + kernels)
    return list(found.values())


def added(parts: Iterable[Sequence[UniqueCall]]) -> list[UniqueCall]:
    """The calls of several steps together."""
    found: dict[tuple[str, str], UniqueCall] = {}
    for call in (call for part in parts for call in part):
        key = (call.op, json.dumps(call.spec) if call.spec is not None else call.reason)
        if (before := found.get(key)) is None:
            found[key] = call
            continue
        both = before.recorded + call.recorded if before.recorded is not None and call.recorded is not None else None
        found[key] = replace(before, count=before.count + call.count, recorded=both, kernels=before.kernels + call.kernels)
    return list(found.values())


def step_time(trace: Trace) -> float | None:
    """The recorded duration of a step in seconds: its label's own time, or from the first operator to the end of the last."""
    timed = [node for node in trace.nodes if node.time is not None and not node.on_device]
    if not timed:
        return None
    label = [node.time.duration for node in timed if trace.label and node.name == trace.label and node.time]
    if label:
        return label[0]
    spans = [(node.time.start, node.time.start + node.time.duration) for node in timed if node.time]
    return max(end for _, end in spans) - min(start for start, _ in spans)
