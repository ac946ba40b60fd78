"""A trace as a graph for other programs: which node ran inside which, and which storage one operator passed to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from xml.sax.saxutils import escape

from steelyard.traces.nodes import TraceNode
from steelyard.traces.steps import Trace

Edge = tuple[int, int, Literal["parent", "data"]]
KEYS = {"name": "string", "kind": "string", "op": "string", "seconds": "double"}
"""The attributes of a node, and their types."""
UNPRINTABLE = {code: None for code in range(32) if code not in (9, 10, 13)}
"""Characters that XML cannot contain in any form."""


def edges(trace: Trace) -> Iterator[Edge]:
    """Yield edges from parent to child, and between outermost operators from the last that wrote a storage to each that reads it."""
    for node in trace.nodes:
        if node.parent != node.id and node.parent in trace.by_id:
            yield node.parent, node.id, "parent"
    written: dict[int, int] = {}
    for node in trace.outermost:
        read = dict.fromkeys(ref.storage for argument in node.inputs for ref in argument.tensors())
        sources = dict.fromkeys(written[storage] for storage in read if storage in written)
        yield from ((source, node.id, "data") for source in sources)
        written |= {ref.storage: node.id for argument in node.outputs for ref in argument.tensors()}


def graphml(trace: Trace) -> Iterator[str]:
    """Yield the graph as GraphML, line by line."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    for name, form in KEYS.items():
        yield f'  <key id="{name}" for="node" attr.name="{name}" attr.type="{form}"/>\n'
    yield '  <key id="relation" for="edge" attr.name="relation" attr.type="string"/>\n'
    yield '  <graph edgedefault="directed">\n'
    for node in trace.nodes:
        values = {"name": node.name, "kind": kind_of(node), "op": node.overload if node.schema else ""}
        data = "".join(f'<data key="{key}">{escape(value.translate(UNPRINTABLE))}</data>' for key, value in values.items() if value)
        time = f'<data key="seconds">{node.time.duration:.9g}</data>' if node.time else ""
        yield f'    <node id="n{node.id}">{data}{time}</node>\n'
    for source, sink, relation in edges(trace):
        yield f'    <edge source="n{source}" target="n{sink}"><data key="relation">{relation}</data></edge>\n'
    yield "  </graph>\n</graphml>\n"


def dot(trace: Trace) -> Iterator[str]:
    """Yield the graph in the language of Graphviz, line by line."""
    yield "digraph trace {\n  rankdir=TB;\n  node [shape=box];\n"
    shapes = {"operator": "box", "label": "ellipse", "communication": "hexagon", "triton": "component", "kernel": "note"}
    for node in trace.nodes:
        yield f"  n{node.id} [label={_quoted(f'{node.name} ({node.id})')}, shape={shapes[kind_of(node)]}];\n"
    for source, sink, relation in edges(trace):
        yield f"  n{source} -> n{sink}{' [style=dashed]' if relation == 'data' else ''};\n"
    yield "}\n"


def kind_of(node: TraceNode) -> str:
    """The kind of a node, in one word."""
    if node.on_device:
        return "kernel"
    if node.is_communication:
        return "communication"
    return "triton" if node.is_triton else "operator" if node.is_operator else "label"


def _quoted(text: str) -> str:
    plain = text.translate(UNPRINTABLE).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", " ")
    return f'"{plain}"'


FORMATS = {"graphml": graphml, "dot": dot}
