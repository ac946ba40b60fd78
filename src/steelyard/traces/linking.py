"""A profiler's trace merged into an execution trace: each node gets its time, and kernels on the device become separate nodes."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.traces.nodes import BadTrace, TraceNode
from steelyard.traces.reading import open_trace
from steelyard.traces.stream import JsonWindow, opened

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
MATCHED, LOOSE = 0.9, "names and order"
"""The least fraction of nodes whose names agree for ids to be used for matching, and the label of the other method."""


@dataclass(frozen=True)
class ProfiledEvent:
    """One event of a profiler's trace; times are in microseconds, as in the file."""

    name: str
    category: str
    start: float
    duration: float
    thread: str
    rf_id: int | None = None
    external: int | None = None
    correlation: int | None = None
    stream: int | None = None

    @property
    def end(self) -> float:
        """When the event ended."""
        return self.start + self.duration


@dataclass
class Profile:
    """The events of a profiler's trace that can be linked."""

    operators: list[ProfiledEvent] = field(default_factory=list)
    launches: dict[int, ProfiledEvent] = field(default_factory=dict)
    kernels: list[ProfiledEvent] = field(default_factory=list)


@dataclass(frozen=True)
class LinkReport:
    """How well two traces matched: nodes with a time, all nodes, kernels with and without an operator, and the method of matching."""

    matched: int
    nodes: int
    kernels: int
    lost_kernels: int
    by: str


def read_profile(path: Path) -> Profile:
    """The events of a profiler's trace that can be linked; the file is read as a stream."""
    found = Profile()
    with opened(path) as window:
        for event in _events(window):
            _sort_in(event, found)
    if not found.operators:
        raise BadTrace("no operators in this profiler's trace", why="it has no events of category cpu_op", where=str(path))
    return found


def _events(window: JsonWindow) -> Iterator[Any]:
    if window.peek() == "[":
        yield from _listed(window)
        return
    window.skip("{")
    while not window.take("}"):
        key = window.value("a key")
        window.skip(":")
        if key == "traceEvents":
            yield from _listed(window)
        else:
            window.value(f"the value of {str(key)[:40]!r}")
        if not window.take(","):
            window.skip("}")
            return


def _listed(window: JsonWindow) -> Iterator[Any]:
    window.skip("[")
    if window.take("]"):
        return
    count = 0
    while True:
        count += 1
        yield window.value(f"event number {count}")
        if not window.take(","):
            window.skip("]")
            return


def _sort_in(data: Any, found: Profile) -> None:
    if not isinstance(data, dict) or data.get("ph") != "X" or not isinstance(data.get("name"), str):
        return
    category, start, lasted = data.get("cat"), data.get("ts"), data.get("dur")
    if not (isinstance(category, str) and _is_time(start) and _is_time(lasted)):
        return
    assert start is not None and lasted is not None
    args = data.get("args") if isinstance(data.get("args"), dict) else {}
    assert isinstance(args, dict)

    def number(*keys: str) -> int | None:
        return next((args[key] for key in keys if type(args.get(key)) is int), None)

    event = ProfiledEvent(
        data["name"], category, float(start), float(lasted), f"{data.get('pid')}/{data.get('tid')}", number("Record function id"),
        number("External id", "external id"), number("correlation"), number("stream"),
    )  # fmt: skip
    if category in ("cpu_op", "user_annotation"):
        found.operators.append(event)
    elif category in ("cuda_runtime", "cuda_driver") and event.correlation is not None:
        found.launches[event.correlation] = event
    elif category in DEVICE:
        found.kernels.append(event)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e18


def link(trace: Path, profile: Path) -> tuple[Callable[[], Iterator[str]], LinkReport]:
    """A function that yields the linked trace as text, reading and writing its nodes one by one, and how well the two traces match."""
    seen = read_profile(profile)
    outline = _outline(trace)
    times, by = _matched(outline, seen)
    if not times:
        raise UsageError(
            "the two traces have nothing in common", why="no node of one trace has a time in the other",
            do="record both in the same step: steelyard capture --profile", where=str(profile),
        )  # fmt: skip
    own = _own_times(outline, times)
    launched, lost = _launched(outline, times, seen)
    report = LinkReport(len(times), len(outline), len(seen.kernels) - lost, lost, by)
    last = max(outline)
    return lambda: _written(trace, times, own, launched, last), report


@dataclass(frozen=True)
class _Outline:
    """What is kept of each node while two traces are matched."""

    name: str
    parent: int
    rf_id: int


def _outline(path: Path) -> dict[int, _Outline]:
    with open_trace(path) as reader:
        return {node.id: _Outline(node.name, node.parent, node.rf_id) for node in reader}


def _matched(outline: Mapping[int, _Outline], seen: Profile) -> tuple[dict[int, ProfiledEvent], str]:
    """Events by node, and the method: by the ids that both observers wrote, if names agree; else by names in the order of time."""
    by_record = {event.rf_id: event for event in seen.operators if event.rf_id is not None}
    by_external = {event.external: event for event in seen.operators if event.external is not None}
    for words, events in (("record function ids", by_record), ("external ids", by_external)):
        found = {id: events[node.rf_id] for id, node in outline.items() if node.rf_id and node.rf_id in events}
        same = {id: event for id, event in found.items() if event.name == outline[id].name}
        if same and len(same) >= MATCHED * len(found):
            return same, words
    return _in_order(outline, seen.operators), LOOSE


def _in_order(outline: Mapping[int, _Outline], events: Sequence[ProfiledEvent]) -> dict[int, ProfiledEvent]:
    """Match the n-th node of a name with the n-th event of that name; a name whose counts differ is left out."""
    places: dict[str, list[int]] = {}
    times: dict[str, list[ProfiledEvent]] = {}
    for id in sorted(outline):
        places.setdefault(outline[id].name, []).append(id)
    for event in sorted(events, key=lambda event: event.start):
        times.setdefault(event.name, []).append(event)
    return {
        id: event
        for name, ids in places.items()
        if len(ids) == len(times.get(name, ()))
        for id, event in zip(ids, times[name], strict=True)
    }


def _own_times(outline: Mapping[int, _Outline], times: Mapping[int, ProfiledEvent]) -> dict[int, float]:
    """Each node's time without that of its children on the same thread, in microseconds."""
    own = {id: event.duration for id, event in times.items()}
    for id, event in times.items():
        parent = outline[id].parent
        if parent != id and parent in own and times[parent].thread == event.thread:
            own[parent] = max(0.0, own[parent] - event.duration)
    return own


def _launched(
    outline: Mapping[int, _Outline], times: Mapping[int, ProfiledEvent], seen: Profile
) -> tuple[dict[int, list[ProfiledEvent]], int]:
    """The kernels of each node, by external id, else by the innermost operator around the launching call; and how many have none."""
    if not seen.kernels:
        return {}, 0
    by_external = {event.external: id for id, event in times.items() if event.external is not None}
    by_thread: dict[str, list[ProfiledSpan]] = {}
    for id, event in times.items():
        by_thread.setdefault(event.thread, []).append((event.start, event.end, id))
    nested = {thread: _Nested(spans) for thread, spans in by_thread.items()}
    found: dict[int, list[ProfiledEvent]] = {}
    lost = 0
    for kernel in sorted(seen.kernels, key=lambda event: event.start):
        launch = seen.launches.get(kernel.correlation) if kernel.correlation is not None else None
        owner = by_external.get(kernel.external) if kernel.external is not None else None
        if owner is None and launch is not None:
            owner = nested[launch.thread].around(launch.start) if launch.thread in nested else None
        if owner is None:
            lost += 1
        else:
            found.setdefault(owner, []).append(kernel)
    return found, lost


ProfiledSpan = tuple[float, float, int]
"""Start, end and node of an operator on its thread."""


class _Nested:
    """The spans of a thread, one inside another, to find the innermost one around a moment."""

    def __init__(self, spans: Iterable[ProfiledSpan]) -> None:
        self._spans = sorted(spans, key=lambda span: (span[0], -span[1]))
        self._starts = [start for start, _, _ in self._spans]
        self._outer = list[int]()
        open_ones = list[int]()
        for place, (start, _, _) in enumerate(self._spans):
            while open_ones and self._spans[open_ones[-1]][1] < start:
                open_ones.pop()
            self._outer.append(open_ones[-1] if open_ones else -1)
            open_ones.append(place)

    def around(self, moment: float) -> int | None:
        """Return the node of the last span that starts before a moment and has not ended by then."""
        place = bisect.bisect_right(self._starts, moment) - 1
        while place >= 0:
            _, end, id = self._spans[place]
            if moment <= end:
                return id
            place = self._outer[place]
        return None


def _written(
    path: Path, times: Mapping[int, ProfiledEvent], own: Mapping[int, float], launched: Mapping[int, Sequence[ProfiledEvent]], last: int
) -> Iterator[str]:
    """Yield the trace with times in its nodes, in the newest schema; kernels follow the nodes that launched them."""
    with open_trace(path) as reader:
        first = True
        for node in reader:
            if first:
                schema = reader.header.schema if reader.header.schema[:4] in ("1.0.", "1.1.") else "1.1.1-chakra.0.0.4"
                schema = schema.replace("1.0.1", "1.0.2-chakra.0.0.4") if schema == "1.0.1" else schema
                head = {"schema": schema, "pid": reader.header.pid, "time": reader.header.time, "start_ts": reader.header.start or 0}
                yield json.dumps(head)[:-1] + ', "nodes": [\n'
            kernels = launched.get(node.id, ())
            yield ("" if first else ",\n") + json.dumps(_plain(node, times.get(node.id), own.get(node.id, 0.0), kernels), default=str)
            first = False
            for kernel in kernels:
                last += 1
                yield ",\n" + json.dumps(_kernel(last, node.id, kernel))
        if first:
            raise UsageError("the trace has no nodes", where=str(path))
        yield f'\n], "finish_ts": {json.dumps(reader.header.finish or 0)}}}\n'


def _plain(node: TraceNode, event: ProfiledEvent | None, own: float, kernels: Sequence[ProfiledEvent]) -> dict[str, Any]:
    attributes = {
        "rf_id": node.rf_id, "fw_parent": node.fw_parent, "seq_id": node.seq_id, "scope": node.scope, "tid": node.tid,
        "fw_tid": node.fw_tid, "op_schema": node.schema, "kernel_backend": node.kernel_backend, "kernel_file": node.kernel_file,
        "tensor_range": json.dumps({str(key): list(ends) for key, ends in node.tensor_ranges.items()}) if node.tensor_ranges else "",
        **node.attributes,
    }  # fmt: skip
    types = {str: "string", int: "int64", float: "double", bool: "bool"}
    made: dict[str, Any] = {"id": node.id, "name": node.name, "ctrl_deps": node.parent}
    for side, ports in (("inputs", node.input_ports), ("outputs", node.output_ports)):
        strides = {} if ports.strides is None else {"strides": ports.strides}
        made[side] = {"values": ports.values, "shapes": ports.shapes, "types": ports.types, **strides}
    made["attrs"] = [{"name": key, "type": types.get(type(value), "string"), "value": value} for key, value in attributes.items()]
    if event is not None:
        made |= {"ts": event.start, "inclusive_dur": event.duration, "exclusive_dur": own}
        if kernels:
            made["kernel_dur"] = sum(kernel.duration for kernel in kernels)
    return made


def _kernel(number: int, parent: int, kernel: ProfiledEvent) -> dict[str, Any]:
    return {
        "id": number, "name": kernel.name, "ctrl_deps": parent, "cat": kernel.category, "attrs": [], "stream": kernel.stream,
        "ts": kernel.start, "inclusive_dur": kernel.duration, "exclusive_dur": kernel.duration,
    }  # fmt: skip


def saved(texts: Iterator[str], output: Path) -> None:
    """Write a trace piece by piece, compressed if its name ends in .gz; an incomplete file is removed."""
    import gzip
    import io

    partial = output.with_name(f".{output.name[:60]}.partial")
    try:
        with partial.open("wb") as raw:
            packed = gzip.GzipFile(fileobj=raw, mode="wb") if output.suffix == ".gz" else None
            with io.TextIOWrapper(packed or raw, encoding="utf-8", write_through=False) as out:
                for text in texts:
                    out.write(text)
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"cannot write {str(output)!r}", why=error.strerror or str(error), do="name another place with -o FILE") from None
    finally:
        partial.unlink(missing_ok=True)
