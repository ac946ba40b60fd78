"""PARAM's programs for execution traces under `steelyard as param`: its trace tool and its validator, with their flags."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from steelyard.dialects.commands import spelt
from steelyard.errors import FAILED, PASS, UsageError
from steelyard.report.traces import node_lines, operator_lines, tree_lines
from steelyard.terminal import CONTEXT, hand_out, say, width
from steelyard.traces.graphs import FORMATS
from steelyard.traces.nodes import STEP
from steelyard.traces.reading import open_trace
from steelyard.traces.steps import Trace, steps
from steelyard.traces.summary import TraceSummary, operators, summarise

SMALL = 300
"""Nodes of the largest graph that is drawn; the original has the same limit."""


@click.command("trace-tool", context_settings=CONTEXT)
@spelt("--input", "file", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The execution trace (.json, .json.gz).")
@spelt("--list-op", "listed", is_flag=True, help="Operators, with how often each was called and with how many different inputs.")
@click.option("--detail", is_flag=True, help="With --list-op: also the inputs, in the form of a config.")
@click.option("--json", "as_json", is_flag=True, help="With --list-op: as JSON.")
@click.option("--clean", is_flag=True, help="With --list-op: only calls that a config can make.")
@spelt("--list-tensor", "tensors", is_flag=True, help="Every tensor with its storage, shape and format.")
@click.option("--tree", is_flag=True, help="Which node ran inside which.")
@click.option("--node", "number", type=int, metavar="ID", help="One node in full.")
@click.option("--graph", "drawn", is_flag=True, help="A graph beside the input: .dot under 300 nodes, else .graphml.")
@click.option("--graphviz", is_flag=True, help="The graph as .dot.")
@click.option("--graphml", is_flag=True, help="The graph as .graphml.")
@spelt("--step-annotation", "mark", default=STEP, show_default=True, metavar="TEXT", help="Text in the label of every step.")
def trace_tool(file: Path, listed: bool, detail: bool, as_json: bool, clean: bool, tensors: bool, tree: bool, number: int | None,
               drawn: bool, graphviz: bool, graphml: bool, mark: str) -> int:  # fmt: skip
    """Inspect an execution trace as PARAM's execution_trace tool does.

    \b
    steelyard as param trace-tool --input trace.json --list-op --detail --json
    """
    if not (listed or tensors or tree or drawn or graphviz or graphml or number is not None):
        raise UsageError("nothing is requested", do="use --list-op, --list-tensor, --tree, --node ID or --graph")
    if not mark:
        raise UsageError("--step-annotation is empty", why="every label would be a step", do="name a text that the labels of steps contain")

    def parts() -> Iterator[Trace]:
        with open_trace(file) as reader:
            yield from steps(reader, mark)

    if listed:
        _list(parts(), detail=detail, as_json=as_json, clean=clean)
    if tensors:
        for line in _tensors(parts()):
            say(line)
    if tree:
        for part in parts():
            for line in tree_lines(part, depth=None, width=width()):
                click.echo(line)
    if number is not None:
        _node(parts(), number, file)
    if drawn or graphviz or graphml:
        _draw(parts(), file, [form for form, asked in (("dot", graphviz), ("graphml", graphml)) if asked], fitting=drawn)
    return PASS


def _draw(parts: Iterable[Trace], file: Path, forms: Sequence[str], *, fitting: bool) -> None:
    """Write graphs of all steps together, in the named forms and in the one that fits their size; all nodes are kept in memory."""
    from steelyard.traces.steps import make_trace

    held = list(parts)
    nodes = [node for part in held for node in part.nodes]
    if not nodes:
        raise UsageError("the trace has no nodes", where=str(file))
    whole = make_trace(file, held[0].header, nodes)
    own = "dot" if len(nodes) < SMALL else "graphml"
    for form in dict.fromkeys([*forms, *([own] if fitting else [])]):
        output = file.with_name(f"{file.name.removesuffix('.gz').removesuffix('.json')}.{form}")
        hand_out("".join(FORMATS[form](whole)), output, f"{len(whole.nodes)} nodes")


def _list(parts: Iterable[Trace], *, detail: bool, as_json: bool, clean: bool) -> None:
    found = operators(parts)
    if not as_json:
        for line in operator_lines(found, detail=detail, width=width()):
            click.echo(line)
        return
    made: dict[str, Any] = {}
    for item in found:
        calls = [call for call in item.calls if call.spec is not None or not clean]
        if calls or not clean:
            inputs = [{"count": call.count, "input": call.spec if call.spec is not None else call.reason} for call in calls]
            made[item.op] = {"count": item.count, "unique": len(item.calls), **({"inputs": inputs} if detail else {})}
    click.echo(json.dumps(made, indent=2))


def _tensors(parts: Iterable[Trace]) -> Iterator[str]:
    seen: set[tuple[Any, ...]] = set()
    for part in parts:
        for node in part.nodes:
            for argument in (*node.inputs, *node.outputs):
                for ref in argument.tensors():
                    key = (ref.tensor, ref.storage, ref.offset, ref.shape)
                    if key not in seen:
                        seen.add(key)
                        yield f"tensor {ref.tensor} storage {ref.storage}+{ref.offset} {ref.dtype}{list(ref.shape)} {ref.device}"


def _node(parts: Iterable[Trace], number: int, file: Path) -> None:
    part = next((part for part in parts if number in part.by_id), None)
    if part is None:
        raise UsageError(f"no node {number}", do="see --tree", where=str(file))
    for line in node_lines(part.by_id[number], part):
        click.echo(line)


@click.command("validate", context_settings=CONTEXT)
@spelt(
    "--trace-path", "file", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The trace, or a folder of rank-N.json."
)
def validate(file: Path) -> int:
    """Count operators, messages between processes and Triton kernels of a trace, or of each rank's, and check that every message names its
    process group, as PARAM's validate_trace does; exit code 3 if one does not.
    """
    found = sorted(path for end in ("json", "json.gz") for path in file.glob(f"rank-*.{end}") if path.name.count(".") == end.count(".") + 1)
    if file.is_dir() and not found:
        raise UsageError(f"no traces in {file}", do="name the files rank-0.json, rank-1.json and so on, or with .json.gz")
    sound = [_valid(summarise(path)) for path in found or [file]]
    return PASS if all(sound) else FAILED


def _valid(found: TraceSummary) -> bool:
    say(f"{found.path.name}: num ops: {found.compute}, num comms: {found.communications}, num triton ops: {found.triton}")
    for problem in found.problems:
        say(f"  {problem}")
    say(f"{found.path.name}: {'FAILED' if found.problems else 'PASSED'}")
    return not found.problems
