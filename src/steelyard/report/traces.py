"""Pages about execution traces: operators, trees, single nodes and counts, for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from steelyard.model.units import number_of, percent
from steelyard.model.units import plain as quantity
from steelyard.report.cells import clean, cut, pad
from steelyard.traces.calls import UniqueCall
from steelyard.traces.comms import RankComms
from steelyard.traces.graphs import kind_of
from steelyard.traces.nodes import TensorRef, TraceArgument, TraceNode
from steelyard.traces.steps import Trace
from steelyard.traces.summary import OperatorCount, TraceSummary

LONGEST_LIST = 6
NAME = 56


def operator_lines(found: Sequence[OperatorCount], *, detail: bool, width: int) -> Iterator[str]:
    """A table of operators; with `detail` also each unique call of an operator."""
    total = sum(item.recorded or 0 for item in found)
    kernels = any(item.kernels for item in found)
    timed = any(item.recorded is not None for item in found)
    head = f"{'count':>9}{'inputs':>9}" + (f"{'time':>12}{'share':>8}" if timed else "") + (f"{'kernels':>12}" if kernels else "")
    yield f"{head}  operator"
    for item in found:
        line = f"{item.count:>9}{len(item.calls):>9}"
        if timed:
            line += f"{_seconds(item.recorded):>12}{percent((item.recorded or 0) / total) if total else '':>8}"
        if kernels:
            line += f"{_seconds(item.kernels):>12}"
        yield cut(f"{line}  {clean(item.op)}", width)
        for call in item.calls if detail else ():
            yield cut(f"{call.count:>9}{'':>9}  {call_words(call)}", width)
    yield f"{number_of(len(found), 'operator')}, {number_of(sum(item.count for item in found), 'call')}, " + number_of(
        sum(len(item.calls) for item in found), "unique call"
    )


def call_words(call: UniqueCall) -> str:
    """`aten::mm(float[2, 3], float[3, 4])`."""
    if call.spec is None:
        return clean(f"{call.op}: {call.reason}")
    parts = [spec_words(arg) for arg in call.spec["args"]]
    parts += [f"{name}={spec_words(arg)}" for name, arg in call.spec.get("kwargs", {}).items()]
    return clean(f"{call.op}({', '.join(parts)})")


def spec_words(spec: Any) -> str:
    """One argument of a config in few words."""
    if spec["type"] == "tensor":
        return f"{spec['dtype']}{spec['shape']}"
    if spec["type"] in ("genericlist", "tuple"):
        items = [spec_words(item) for item in spec["value"][:LONGEST_LIST]]
        more = len(spec["value"]) - len(items)
        return f"[{', '.join([*items, *([f'… {more} more'] if more else [])])}]"
    return json.dumps(spec.get("value"))


def tree_lines(trace: Trace, *, depth: int | None, width: int) -> Iterator[str]:
    """The tree of nodes, each level indented by two columns."""
    for root in trace.roots:
        for level, node in trace.below(root):
            if depth is None or level <= depth:
                time = f"  {_seconds(node.time.duration)}" if node.time else ""
                shapes = ", ".join(_words(argument) for argument in node.inputs) if node.is_operator else ""
                yield cut(f"{'  ' * min(level, 40)}{node.id} {clean(node.name)}{time}{f'  ({clean(shapes)})' if shapes else ''}", width)


def node_lines(node: TraceNode, trace: Trace) -> Iterator[str]:
    """Everything about one node."""
    yield f"node {node.id}  {clean(node.name)}"
    around = " < ".join(f"{clean(outer.name)} ({outer.id})" for outer in trace.above(node))
    facts = {
        "kind": kind_of(node), "inside": around, "schema": node.schema, "thread": node.tid or "",
        "sequence": node.seq_id if node.seq_id >= 0 else "", "forward": node.fw_parent or "",
        "time": _seconds(node.time.duration) if node.time else "", "own time": _seconds(node.time.own) if node.time else "",
        "kernel": " ".join(filter(None, (node.kernel_backend, node.kernel_file))), "children": len(trace.children.get(node.id, ())) or "",
    }  # fmt: skip
    for key, value in facts.items():
        if value != "":
            yield f"  {pad(key, 10)}{clean(value)}"
    for side, arguments in (("inputs", node.inputs), ("outputs", node.outputs)):
        for place, argument in enumerate(arguments):
            yield f"  {pad(f'{side[:-1]} {place}', 10)}{clean(_words(argument, full=True))}"
    for key, value in node.attributes.items():
        yield f"  {clean(key)[:40]}: {clean(json.dumps(value, default=str))[:400]}"


def _words(argument: TraceArgument, *, full: bool = False) -> str:
    value = argument.value
    if isinstance(value, TensorRef):
        if not value.defined:
            return "no tensor"
        more = f" strides {list(value.strides)}" if full and value.strides is not None else ""
        where = f" on {value.device or 'an unknown device'}, tensor {value.tensor}, storage {value.storage}+{value.offset}" if full else ""
        return f"{value.dtype}{list(value.shape)}{more}{where}"
    if isinstance(value, tuple):
        items = [_words(item, full=full) for item in (value if full else value[:LONGEST_LIST])]
        return f"[{', '.join([*items, *(['…'] if len(items) < len(value) else [])])}]"
    return "None" if value is None else json.dumps(value) if isinstance(value, str) else str(value)


def summary_lines(found: TraceSummary, *, verdict: bool = False) -> Iterator[str]:
    """The counts of a trace and its problems; with `verdict` also whether it is valid."""
    yield f"{clean(found.path.name)}  schema {clean(found.header.schema)}" + (f", {clean(found.header.time)}" if found.header.time else "")
    facts = {
        "nodes": found.nodes, "operators": f"{found.operators}, of which {found.outermost} are outermost", "compute": found.compute,
        "communication": found.communications, "Triton": found.triton, "kernels": found.kernels or "",
        "linked": f"{found.linked} nodes have a time" if found.linked else "", "threads": found.threads,
        "tensors": f"{found.tensors} in {number_of(found.storages, 'storage')}, {quantity(found.bytes, 'B')}",
        "formats": ", ".join(f"{name} {count}" for name, count in list(found.dtypes.items())[:12]),
        "devices": ", ".join(f"{name} {count}" for name, count in list(found.devices.items())[:12]),
        "groups": ", ".join(str(group.get("pg_name", "?")) for group in found.groups[:20]),
    }  # fmt: skip
    for key, value in facts.items():
        if value != "":
            yield f"  {pad(key, 15)}{clean(value)}"
    for step in found.steps[:20]:
        time = f", {_seconds(step.seconds)}" if step.seconds is not None else ""
        yield f"  {pad(clean(step.label)[:15], 15)}{number_of(step.nodes, 'node')}, {number_of(step.operators, 'outermost operator')}{time}"
    if len(found.steps) > 20:
        yield f"  … and {len(found.steps) - 20} more steps"
    for problem in found.problems:
        yield f"  ✗ {clean(problem)}"
    if verdict:
        yield "  ✗ not valid" if found.problems else "  ✓ valid"


def _seconds(value: float | None) -> str:
    return "" if value is None else quantity(value, "s")


def comm_lines(rank: int, found: RankComms) -> Iterator[str]:
    """Communication of a rank: calls by kind, with the sizes of their messages."""
    recorded = f", {number_of(found.world, 'rank')} recorded" if found.world else ""
    yield f"rank {rank}: {number_of(len(found.calls), 'call')}{recorded}"
    yield f"{'calls':>9}{'sent':>13}{'received':>13}{'smallest':>13}{'median':>13}{'largest':>13}  kind"
    for row in found.messages():
        sizes = (row[key] for key in ("sent_bytes", "received_bytes", "smallest", "median", "largest"))
        yield f"{row['calls']:>9}" + "".join(f"{quantity(size, 'B'):>13}" for size in sizes) + f"  {row['kind']}"
    for name, count in found.unread.items():
        yield f"{count:>9}  unknown: {clean(name)}"
