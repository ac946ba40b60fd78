"""`steelyard trace`: execution traces as tables, trees, counts and graphs; adding a profiler's times to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, emit_json, json_option, width
from steelyard.errors import FAILED, PASS, UsageError

if TYPE_CHECKING:
    from steelyard.traces.nodes import TraceNode
    from steelyard.traces.steps import Trace
    from steelyard.traces.summary import OperatorCount

Function = Callable[..., Any]
file_argument = click.argument("file", type=click.Path(path_type=Path))


def part_options(function: Function) -> Function:
    """Add the options that select a part of a trace."""
    function = click.option(
        "--subgraph", default="", metavar="NAME", help="Only the first node whose name contains NAME, with its children."
    )(function)
    return click.option("--step", type=int, metavar="N", help="Only the step at this position, from 0.")(function)


@click.group("trace", context_settings=CONTEXT)
def command() -> None:
    """Inspect an execution trace of PyTorch or Chakra (.json or .json.gz), of any schema version.

    \b
    steelyard trace list step.json
    steelyard trace script step.json -o replay.py
    steelyard trace link step.json profile.json -o linked.json
    """


@command.command("list", context_settings=CONTEXT)
@file_argument
@part_options
@click.option("--detail", is_flag=True, help="Also list each set of inputs an operator was called with.")
@click.option("--all", "inner", is_flag=True, help="Also list operators that ran inside other operators.")
@json_option
def list_operators(file: Path, step: int | None, subgraph: str, detail: bool, inner: bool, as_json: bool) -> None:
    """List the outermost operators by count, and by time if a profiler's trace was linked."""
    from steelyard.traces.summary import operators

    found = operators(_parts(file, step, subgraph), inner=inner)
    if as_json:
        emit_json([_operator(item, detail) for item in found])
        return
    from steelyard.report.traces import operator_lines

    _print(operator_lines(found, detail=detail, width=width()))


@command.command("tree", context_settings=CONTEXT)
@file_argument
@part_options
@click.option("--depth", type=int, metavar="N", help="No deeper than this.")
@json_option
def tree(file: Path, step: int | None, subgraph: str, depth: int | None, as_json: bool) -> None:
    """Show the tree of nodes with shapes, and times if known."""
    trace = _read(file, step, subgraph)
    if as_json:
        nodes = [(level, node) for root in trace.roots for level, node in trace.below(root)]
        emit_json([{"depth": level, **_brief(node)} for level, node in nodes if depth is None or level <= depth])
        return
    from steelyard.report.traces import tree_lines

    _print(tree_lines(trace, depth=depth, width=width()))


@command.command("node", context_settings=CONTEXT)
@file_argument
@click.argument("number", type=int)
@json_option
def node(file: Path, number: int, as_json: bool) -> None:
    """Show one node in full, by its id."""
    from steelyard.traces.reading import open_trace
    from steelyard.traces.steps import steps

    with open_trace(file) as reader:
        found = next(((part, part.by_id[number]) for part in steps(reader) if number in part.by_id), None)
    if found is None:
        raise UsageError(f"no node {number}", do="see steelyard trace tree", where=str(file))
    part, chosen = found
    if as_json:
        emit_json({**_brief(chosen), "schema": chosen.schema, "inputs": chosen.inputs, "outputs": chosen.outputs,
                   "children": [child.id for child in part.children.get(number, ())], "attributes": chosen.attributes})  # fmt: skip
        return
    from steelyard.report.traces import node_lines

    _print(node_lines(chosen, part))


@command.command("stats", context_settings=CONTEXT)
@file_argument
@json_option
def stats(file: Path, as_json: bool) -> None:
    """Count nodes, operators, messages, Triton kernels, tensors and bytes, and list the steps."""
    _summary(file, as_json, verdict=False)


@command.command("validate", context_settings=CONTEXT)
@file_argument
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check every node and argument, and that messages between processes name their process group; exit 3 if a check fails."""
    return _summary(file, as_json, verdict=True)


@command.command("comms", context_settings=CONTEXT)
@file_argument
@part_options
@json_option
def comms(file: Path, step: int | None, subgraph: str, as_json: bool) -> None:
    """List the kinds of calls between ranks with their number and sizes, of a trace or of a folder with rank-N.json."""
    from steelyard.traces.comms import rank_files, read_comms

    files = rank_files(file) if file.is_dir() else {0: file}
    if not files:
        raise UsageError("there is no rank-N.json", do="name a trace, or a folder with those of all ranks", where=str(file))
    found = {rank: read_comms(path, step, subgraph) for rank, path in files.items()}
    if as_json:
        emit_json([{"rank": rank, "messages": item.messages(), "unknown": dict(item.unread)} for rank, item in found.items()])
        return
    from steelyard.report.traces import comm_lines

    _print(line for rank, item in found.items() for line in comm_lines(rank, item))


@command.command("graph", context_settings=CONTEXT)
@file_argument
@part_options
@click.option("--form", type=click.Choice(["graphml", "dot"]), help="Format. Default: by the output's suffix, else graphml.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here instead of to stdout.")
def graph(file: Path, step: int | None, subgraph: str, form: str | None, output: Path | None) -> None:
    """Write a step as a graph (GraphML or Graphviz): parents, and data from one outermost operator to the next."""
    from steelyard.model.units import number_of
    from steelyard.terminal import hand_out
    from steelyard.traces.graphs import FORMATS

    ending = output.suffix.lstrip(".") if output else ""
    form = form or {"gv": "dot"}.get(ending, ending) or "graphml"
    if form not in FORMATS:
        raise UsageError(f"the format of {output} is unknown", do="name it .graphml or .dot, or use --form")
    trace = _read(file, step, subgraph)
    hand_out("".join(FORMATS[form](trace)), output, number_of(len(trace.nodes), "node"))


@command.command("link", context_settings=CONTEXT)
@file_argument
@click.argument("profile", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="File for the linked trace (.json, .json.gz)."
)
@json_option
def link_profile(file: Path, profile: Path, output: Path, as_json: bool) -> None:
    """Add the times of a profiler's trace of the same step to an execution trace, with kernels as nodes. Nodes are matched by the ids that
    both recorded, or else by name and order.
    """
    from steelyard.traces.linking import link, saved

    texts, found = link(file, profile)
    saved(texts(), output)
    if as_json:
        emit_json(found)
        return
    kernels = f", {found.kernels} kernels" + (f" ({found.lost_kernels} without an operator left out)" if found.lost_kernels else "")
    click.echo(f"{found.matched} of {found.nodes} nodes have a time, by {found.by}{kernels} · saved {output}", err=True)


@command.command("script", context_settings=CONTEXT)
@file_argument
@part_options
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here instead of to stdout.")
@click.option("-d", "--device", default="cpu", show_default=True, metavar="DEVICE", help="The script's default device: cpu, cuda, cuda:1.")
@click.option("--skip", multiple=True, metavar="OPERATOR", help="Leave this operator out; repeat for more.")
@click.option(
    "--import", "imports", multiple=True, metavar="MODULE", help="Module to import because it registers operators; repeat for more."
)
@click.option("--env", metavar="NAME", help="Use the PyTorch of an environment made by 'steelyard env create'.")
def script(
    file: Path, step: int | None, subgraph: str, output: Path | None, device: str, skip: tuple[str, ...], imports: tuple[str, ...],
    env: str | None,
) -> int:  # fmt: skip
    """Write a replay as a Python script that needs only PyTorch; exit 3 if an operator could not be included."""
    from steelyard.engine.replaying import replay_script
    from steelyard.engine.selection import read_devices
    from steelyard.terminal import hand_out

    read_devices([device])
    words = {"step": step, "subgraph": subgraph, "skip": list(skip), "imports": list(imports), "output": str(output or "")}
    found = replay_script(file, device, env or "", words)
    skipped = found.facts["skipped"]
    for row in skipped:
        click.echo(f"left out {row['count']} x {row['operator']}: {row['why']}", err=True)
    hand_out(found.text, output, f"{found.facts['replayed']} of {found.facts['operators']} operators")
    return FAILED if skipped else PASS


def _parts(file: Path, step: int | None, subgraph: str) -> Iterator[Trace]:
    """The selected part of the trace, else every step, one at a time."""
    from steelyard.traces.reading import open_trace
    from steelyard.traces.steps import steps

    if step is not None or subgraph:
        yield _read(file, step, subgraph)
        return
    with open_trace(file) as reader:
        yield from steps(reader)


def _read(file: Path, step: int | None, subgraph: str) -> Trace:
    from steelyard.traces.steps import read_trace

    return read_trace(file, step, subgraph)


def _summary(file: Path, as_json: bool, *, verdict: bool) -> int:
    from steelyard.report.traces import summary_lines
    from steelyard.traces.summary import summarise

    found = summarise(file)
    if as_json:
        emit_json(found)
    else:
        _print(summary_lines(found, verdict=verdict))
    return FAILED if verdict and found.problems else PASS


def _operator(item: OperatorCount, detail: bool) -> dict[str, Any]:
    calls = [{"count": call.count, "recorded": call.recorded, "input": call.spec, "reason": call.reason} for call in item.calls]
    made = {"op": item.op, "count": item.count, "unique": len(calls), "recorded": item.recorded, "kernels": item.kernels}
    return {**made, "calls": calls} if detail else made


def _brief(node: TraceNode) -> dict[str, Any]:
    return {"id": node.id, "name": node.name, "parent": node.parent, "op": node.overload if node.schema else "",
            "seconds": node.time.duration if node.time else None}  # fmt: skip


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(line)
