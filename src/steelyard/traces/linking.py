"""A profiler's trace merged into an execution trace: each node gets its time, and kernels on the device become nodes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.traces.nodes import BadTrace, TraceNode
from steelyard.traces.reading import open_trace
from steelyard.traces.stream import JsonWindow, opened

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
MATCHED, LOOSE = 0.9, "names and order"
"""The least share of nodes with the same ids and names from which ids are used for matching."""


@dataclass(frozen=True)
class ProfiledEvent:
    """One event of a profiler's trace; times in microseconds, as they stand there."""

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
        """When it was over."""
        return self.start + self.duration


@dataclass
class Profile:
    """The events of a profiler's trace that can be linked."""

    operators: list[ProfiledEvent] = field(default_factory=list)
    launches: dict[int, ProfiledEvent] = field(default_factory=dict)
    kernels: list[ProfiledEvent] = field(default_factory=list)


@dataclass(frozen=True)
class LinkReport:
    """How well two traces fitted: nodes with and without a time, kernels with and without an operator, and what they were matched by."""

    matched: int
    nodes: int
    kernels: int
    lost_kernels: int
    by: str


def read_profile(path: Path) -> Profile:
    """The events of a profiler's trace, as a stream."""
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
    """How well the two fit, and the linked trace as text when it is asked for: its nodes are read and written one by one."""
    seen = read_profile(profile)
    outline = _outline(trace)
    times, by = _matched(outline, seen)
    if not times:
        raise UsageError(
            "the two traces have nothing in common", why="no node of one has a time in the other",
            do="take both of the same step: steelyard capture --profile", where=str(profile),
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
    """By the ids that both observers wrote, if their names agree; else by names in the order of time."""
    by_record = {event.rf_id: event for event in seen.operators if event.rf_id is not None}
    by_external = {event.external: event for event in seen.operators if event.external is not None}
    for words, events in (("record function ids", by_record), ("external ids", by_external)):
        found = {id: events[node.rf_id] for id, node in outline.items() if node.rf_id and node.rf_id in events}
        same = {id: event for id, event in found.items() if event.name == outline[id].name}
        if same and len(same) >= MATCHED * len(found):
            return same, words
    return _in_order(outline, seen.operators), LOOSE


def _in_order(outline: Mapping[int, _Outline], events: Sequence[ProfiledEvent]) -> dict[int, ProfiledEvent]:
    """The n-th node of a name is the n-th event of that name; a name that is not as often in both is left out."""
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
    """The kernels of each node: by external id, else by the innermost operator around the call that launched it."""
    if not seen.kernels:
        return {}, 0
    by_external = {event.external: id for id, event in times.items() if event.external is not None}
    by_thread: dict[str, list[tuple[float, float, int]]] = {}
    for id, event in times.items():
        by_thread.setdefault(event.thread, []).append((event.start, event.end, id))
    for spans in by_thread.values():
        spans.sort()
    found: dict[int, list[ProfiledEvent]] = {}
    lost = 0
    for kernel in sorted(seen.kernels, key=lambda event: event.start):
        launch = seen.launches.get(kernel.correlation) if kernel.correlation is not None else None
        owner = by_external.get(kernel.external) if kernel.external is not None else None
        if owner is None and launch is not None:
            owner = _around(by_thread.get(launch.thread, ()), launch.start)
        if owner is None:
            lost += 1
        else:
            found.setdefault(owner, []).append(kernel)
    return found, lost


def _around(spans: Sequence[tuple[float, float, int]], moment: float) -> int | None:
    """The innermost of nested spans around a moment: the last to begin before it that has not ended."""
    import bisect

    place = bisect.bisect_right(spans, (moment, float("inf"), 0))
    for start, end, id in reversed(spans[max(0, place - 1000) : place]):
        if start <= moment <= end:
            return id
    return None


def _written(
    path: Path, times: Mapping[int, ProfiledEvent], own: Mapping[int, float], launched: Mapping[int, Sequence[ProfiledEvent]], last: int
) -> Iterator[str]:
    """The trace again with times in the nodes, in the newest schema; kernels follow the nodes that launched them."""
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
            raise UsageError("a trace without nodes", where=str(path))
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
    """Write a trace piece by piece, packed where its name ends in .gz; a file that breaks off is taken away."""
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
