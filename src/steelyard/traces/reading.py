"""Read the nodes of a trace file one by one, in any known schema."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard.errors import SteelyardError
from steelyard.traces.nodes import LARGEST, TRITON, BadTrace, NodeTime, Ports, TraceNode
from steelyard.traces.stream import JsonWindow, opened

SCHEMAS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
CHAKRA = "chakra"
DENSE = 2**28
"""Node ids below this take one bit each."""
LONGEST_TEXT = 2**20
"""The longest text that is read, such as the lists that Chakra's JSON form writes as text."""
LAUNCH = 2
"""Values that PyTorch adds after a Triton kernel's own without strides: the stream and formerly the grid."""
MICRO = 1e-6
_SCHEMA = re.compile(r"(\d{1,4}\.\d{1,4}\.\d{1,4})(-chakra\.[0-9.]{1,20})?")
_END = re.compile(r'\]\s*,\s*"finish_ts"\s*:\s*[0-9.]+\s*\}\s*\Z')
_NUMBERS = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0}
"""Attributes that are numbers, in the order of a node's fields, with their defaults."""
_TEXTS = ("op_schema", "kernel_backend", "kernel_file")
_IO_KEYS = ("input", "output")
_FLAT = {"id", "name", "parent", "inputs", "outputs", "tensor_range", *_NUMBERS, *_TEXTS} | {
    f"{side}_{part}" for side in _IO_KEYS for part in ("shapes", "types", "strides")
}
_NESTED = {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs", "ts", "inclusive_dur", "exclusive_dur", "kernel_dur"}


@dataclass(frozen=True)
class TraceHeader:
    """The metadata of a trace; keys after its nodes are there once the nodes were read."""

    schema: str = ""
    pid: int = 0
    time: str = ""
    start: float | None = None
    finish: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def open_trace(path: Path) -> Iterator[TraceReader]:
    """Open a trace to read it from its beginning: `for node in reader`."""
    with opened(path) as window:
        yield TraceReader(window, path)


def is_trace(path: Path) -> bool:
    """Whether a file is an execution trace, by its first node; False if it cannot be read (opening it says why)."""
    if not path.name.lower().endswith((".json", ".json.gz")):
        return False
    try:
        with open_trace(path) as reader:
            return next(iter(reader), None) is not None
    except SteelyardError:
        return False


class TraceReader:
    """The nodes of one trace in the order of the file, checked one by one; PyTorch writes a node when it ends, so children come first."""

    def __init__(self, window: JsonWindow, path: Path) -> None:
        self._window, self.path = window, path
        self.header = TraceHeader()
        self.count = 0
        self._ids = _Ids()

    @property
    def position(self) -> int:
        """The number of characters read so far."""
        return self._window.position

    def ends_whole(self) -> bool:
        """Whether the file ends as PyTorch ends one and named its schema first; no node can be read after this call."""
        return bool(self.header.schema and _END.search(self._window.tail()))

    def __iter__(self) -> Iterator[TraceNode]:
        try:
            yield from self._whole()
        except BadTrace as error:
            where = error.where or str(self.path)
            raise BadTrace(error.what, why=error.why, do=error.do, where=where) from None

    def _whole(self) -> Iterator[TraceNode]:
        window, found, had_nodes = self._window, dict[str, Any](), False
        if window.peek() != "{":
            raise BadTrace("not an execution trace", why="it does not begin like a JSON object")
        window.skip("{")
        while not window.take("}"):
            key = window.value("a key")
            window.skip(":")
            if key == "nodes":
                if had_nodes:
                    raise BadTrace("nodes: given twice")
                had_nodes = True
                if "schema" in found:
                    _known(found)
                yield from self._nodes()
            else:
                found[str(key)] = window.value(f"the value of {str(key)[:40]!r}")
                self.header = _header(found, self.header)
            if not window.take(","):
                window.skip("}")
                break
        if had_nodes:
            _known(found)
            if window.peek():
                raise window.broken("something follows the trace's end")
        else:
            yield from self._chakra(found)

    def _nodes(self) -> Iterator[TraceNode]:
        window = self._window
        window.skip("[")
        if window.take("]"):
            return
        while True:
            yield self._node(window.value(f"node number {self.count + 1}"), _nested)
            if not window.take(","):
                window.skip("]")
                return

    def _chakra(self, found: Mapping[str, Any]) -> Iterator[TraceNode]:
        """Yield nodes from Chakra's own messages as JSON: one object for the trace, then one for each node."""
        window = self._window
        if ("version" not in found and "metadata" not in found) or not window.peek():
            known = ", ".join(sorted(str(key)[:40] for key in found)[:8])
            raise BadTrace("not an execution trace", why=f"it has no nodes; its keys: {known or 'none'}")
        self.header = replace(self.header, schema=f"{CHAKRA} {str(found.get('version', ''))[:20]}".strip())
        while window.peek():
            yield self._node(window.value(f"node number {self.count + 1}"), _chakra)

    def _node(self, data: Any, make: Callable[[dict[str, Any]], TraceNode]) -> TraceNode:
        self.count += 1
        try:
            if not isinstance(data, dict):
                raise BadTrace("it is not an object")
            node = make(data)
            if not self._ids.add(node.id):
                raise BadTrace("an earlier node has the same id")
            return node
        except BadTrace as error:
            raise BadTrace(f"{_which(data, self.count)}: {error.what}", why=error.why, do=error.do) from None


def _which(data: Any, count: int) -> str:
    """A node's id and name for messages, or its place if it has no id."""
    found = data.get("id") if isinstance(data, dict) else None
    if not isinstance(found, (int, str)) or (isinstance(found, int) and abs(found) >= LARGEST):
        return f"node number {count}"
    name = data.get("name")
    return f"node {str(found)[:40]} ({name[:60]})" if isinstance(name, str) else f"node {str(found)[:40]}"


def _known(found: Mapping[str, Any]) -> None:
    """Raise for a schema that cannot be read."""
    schema = found.get("schema")
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if match is None or match[1] not in SCHEMAS:
        said = f"schema {str(schema)[:40]!r} is unknown" if "schema" in found else "the trace names no schema"
        raise BadTrace(said, why=f"traces of {', '.join(SCHEMAS)} and Chakra's JSON form can be read")


def _header(found: Mapping[str, Any], before: TraceHeader) -> TraceHeader:
    def number(key: str) -> float | None:
        value = found.get(key)
        return value if isinstance(value, (int, float)) and -LARGEST < value < LARGEST else None

    schema = found.get("schema", "")
    more = {key: value for key, value in found.items() if key not in ("schema", "pid", "time", "start_ts", "finish_ts")}
    return replace(
        before, schema=schema if isinstance(schema, str) else "", pid=int(number("pid") or 0), time=str(found.get("time", ""))[:80],
        start=number("start_ts"), finish=number("finish_ts"), more=more,
    )  # fmt: skip


class _Ids:
    """The ids seen so far, with a bit for each small one, to save memory."""

    def __init__(self) -> None:
        self._bits, self._large = bytearray(), set[int]()

    def add(self, number: int) -> bool:
        """Add an id; return whether it is new."""
        if number >= DENSE:
            new = number not in self._large
            self._large.add(number)
            return new
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(max(place + 1, 2 * len(self._bits)) - len(self._bits)))
        new = not self._bits[place] & bit
        self._bits[place] |= bit
        return new


def _nested(data: dict[str, Any]) -> TraceNode:
    """A node of schemas 1.0.2 to 1.1.1, or a flat one of 1.0.1: the file may name its schema only after its nodes."""
    if "ctrl_deps" not in data and "parent" in data:
        return _flat(data)
    attributes: dict[str, Any] = {}
    listed = data.get("attrs", [])
    if not isinstance(listed, list):
        raise BadTrace("attrs is not a list")
    for item in listed:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise BadTrace("one of its attrs has no name")
        attributes[item["name"]] = item.get("value")
    more = {key: value for key, value in data.items() if key not in _NESTED}
    parent = data.get("ctrl_deps")
    inputs = _ports(data.get("inputs"), "inputs", LAUNCH if attributes.get("kernel_backend") == TRITON else 0)
    return _made(data, parent, attributes, inputs, _ports(data.get("outputs"), "outputs"), _time(data), more)


def _flat(data: dict[str, Any]) -> TraceNode:
    """A node of schema 1.0.1, which has a field for everything."""
    ports = []
    for side in _IO_KEYS:
        parts = {"values": data.get(f"{side}s", []), "shapes": data.get(f"{side}_shapes", []), "types": data.get(f"{side}_types", [])}
        if f"{side}_strides" in data:
            parts["strides"] = data[f"{side}_strides"]
        ports.append(_ports(parts, f"{side}s"))
    attributes = {key: data[key] for key in (*_NUMBERS, *_TEXTS, "tensor_range") if key in data}
    more = {key: value for key, value in data.items() if key not in _FLAT}
    return _made(data, data.get("parent"), attributes, ports[0], ports[1], _time(data), more)


def _chakra(data: dict[str, Any]) -> TraceNode:
    """A node of Chakra's own messages, whose JSON has 64-bit numbers and lists as text and leaves out zeros."""
    attributes: dict[str, Any] = {}
    listed = data.get("attr") or []
    if not isinstance(listed, list):
        raise BadTrace("attr is not a list")
    for item in listed:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise BadTrace("one of its attributes has no name")
        kind, value = next(((key, value) for key, value in item.items() if key not in ("name", "docString", "doc_string")), ("", None))
        attributes[item["name"]] = _number(value) if "int" in kind.lower() else value
    before = data.get("ctrlDeps", data.get("ctrl_deps")) or []
    if not isinstance(before, list):
        raise BadTrace("its control dependencies are not a list")
    number = _number(data.get("id", 0))
    start, lasted = (_number(data.get(key, data.get(other))) for key, other in
                     (("startTimeMicros", "start_time_micros"), ("durationMicros", "duration_micros")))  # fmt: skip
    time = _time({"ts": start or 0, "inclusive_dur": lasted}) if lasted else None
    more = {key: value for key, value in data.items() if key in ("type", "dataDeps", "data_deps")}
    ports = [_ports(_listed(data.get(side)), side) for side in ("inputs", "outputs")]
    parent = _number(before[0]) if before else number
    return _made({**data, "id": number}, parent, attributes, ports[0], ports[1], time, more)


def _listed(data: Any) -> Any:
    """The three lists of a port, which Chakra's messages have as text printed by Python."""
    if not isinstance(data, dict):
        return data
    found = {}
    for key, text in data.items():
        if isinstance(text, str):
            if len(text) > LONGEST_TEXT:
                raise BadTrace(f"{key} is a text of {len(text)} characters", why=f"at most {LONGEST_TEXT} are read")
            try:
                found[key] = ast.literal_eval(text or "[]")
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                raise BadTrace(f"{key} is a text that is not a list") from None
        else:
            found[key] = text
    return found


def _number(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        return int(value)
    return value


def _made(
    data: dict[str, Any],
    parent: Any,
    attributes: dict[str, Any],
    inputs: Ports,
    outputs: Ports,
    time: NodeTime | None,
    more: dict[str, Any],
) -> TraceNode:
    number, name = data.get("id"), data.get("name", "")
    if type(number) is not int or not 0 <= number < LARGEST:
        raise BadTrace("its id is not a count")
    if type(parent) is not int or not 0 <= parent < LARGEST:
        raise BadTrace("the id of its parent is not a count")
    if not isinstance(name, str):
        raise BadTrace("its name is not text")
    rf_id, fw_parent, seq_id, scope, tid, fw_tid = (_integer(attributes.pop(key, None), key, usual) for key, usual in _NUMBERS.items())
    schema, backend, file = (_text(attributes.pop(key, None), key) for key in _TEXTS)
    ranges = _ranges(attributes.pop("tensor_range", ""))
    on_device = more.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    attributes.update(more)
    return TraceNode(
        number, name, parent, schema, rf_id, fw_parent, seq_id, scope, tid, fw_tid, backend, file, ranges, inputs, outputs, attributes,
        time, on_device,
    )  # fmt: skip


def _integer(value: Any, key: str, usual: int) -> int:
    if value is None:
        return usual
    if type(value) is not int or not -LARGEST < value < LARGEST:
        raise BadTrace(f"{key} is not a 64-bit number")
    return value


def _text(value: Any, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadTrace(f"{key} is not text")
    return value


def _ports(data: Any, side: str, behind: int = 0) -> Ports:
    """The inputs or outputs of a node; the last `behind` values may lack strides."""
    if data is None:
        return Ports()
    if not isinstance(data, dict):
        raise BadTrace(f"{side} is not an object")
    values, shapes, types, strides = (data.get(key, []) for key in ("values", "shapes", "types", "strides"))
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        raise BadTrace(f"{side} are not three lists")
    if not len(values) == len(shapes) == len(types):
        raise BadTrace(f"{side} have {len(values)} values, {len(shapes)} shapes and {len(types)} types")
    if not all(type(word) is str for word in types):
        raise BadTrace(f"a type of its {side} is not text")
    if "strides" not in data:
        return Ports(values, shapes, types)
    if not isinstance(strides, list) or not max(0, len(values) - behind) <= len(strides) <= len(values):
        raise BadTrace(f"{side} have {len(values)} values, which their strides do not fit")
    return Ports(values, shapes, types, [*strides, *([] for _ in values[len(strides) :])])


def _ranges(text: Any) -> Mapping[int, tuple[int, int]]:
    """The least and the greatest element of each integer tensor, by its index among all tensors of the inputs."""
    if not text:
        return {}
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise BadTrace("tensor_range is not a short text")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise BadTrace("tensor_range is not valid JSON") from None
    found = {}
    for key, pair in data.items() if isinstance(data, dict) else ():
        right = isinstance(pair, list) and len(pair) == 2 and all(type(end) is int and -LARGEST < end < LARGEST for end in pair)
        if not right or not re.fullmatch(r"\d{1,9}", key, re.ASCII) or pair[0] > pair[1]:
            raise BadTrace("tensor_range is not a range for each tensor")
        found[int(key)] = (pair[0], pair[1])
    return found


def _time(data: Mapping[str, Any]) -> NodeTime | None:
    """When the node ran, if the trace was linked with a profiler's."""
    if "inclusive_dur" not in data:
        return None
    values = [data.get(key, 0) for key in ("ts", "inclusive_dur", "exclusive_dur", "kernel_dur")]
    if not all(type(value) in (int, float) and 0 <= value < 1e18 for value in values):
        raise BadTrace("its times are not numbers")
    stream = data.get("stream")
    start, lasted, own, kernels = (value * MICRO for value in values)
    return NodeTime(start, lasted, own if "exclusive_dur" in data else lasted, kernels, stream if type(stream) is int else None)
