"""`steelyard capture`: an execution trace of a script or of a case."""

from __future__ import annotations

import re
from pathlib import Path

import click

from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, say
from steelyard.errors import NothingMeasured, UsageError


@click.command("capture", context_settings={**CONTEXT, "ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--case", "case", metavar="CASE", help="Record one call of a case, as 'run' names it: an id, or a workload.")
@click.option("-a", "--axis", "axes", multiple=True, metavar="NAME=VALUE", help="With --case: a parameter of its workload.")
@click.option("--mode", metavar="MODE", help="With --case: eval, train, fwd or bwd.")
@click.option("-d", "--device", metavar="DEVICE", help="With --case: cpu or cuda.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("trace.json"), show_default=True, metavar="FILE",
              help="The trace (.json, .json.gz), or a folder for rank-N.json of each rank.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Also run the profiler, and add its times of operators and kernels to the trace.")
@click.option("--no-resources", is_flag=True, help="Do not record Triton kernels and integer tensors (a replay needs them).")
@click.option("--steps", metavar="N[:M]", help="With a script: only these training steps, from 0, counted by optimizer calls.")
@click.option(
    "--ranks",
    type=click.IntRange(1, 256),
    help="With a script: number of processes, started as torchrun does. Default: one process, without torchrun.",
)
@click.option("--threads", type=click.IntRange(1, 4096), default=1, show_default=True, help="With a script: CPU threads of each process.")
@click.option("--timeout", default="10min", show_default=True, help="Time limit for recording.")
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT.py [ARGUMENT]…]")
def command(
    case: str | None, axes: tuple[str, ...], mode: str | None, device: str | None, output: Path, profile: bool, no_resources: bool,
    steps: str | None, ranks: int | None, threads: int, timeout: str, as_json: bool, words: tuple[str, ...],
) -> None:  # fmt: skip
    """Record which PyTorch operators run, with their arguments: in a whole script, in some of its training steps, or in one call of a case.
    It runs in a worker process.

    \b
    steelyard capture -o step.json --steps 3 train.py --lr 0.1
    steelyard capture --case model/mlp --mode train --profile -o mlp.json
    """
    from steelyard.cli.run import read_axes
    from steelyard.engine import capture
    from steelyard.engine.selection import Request
    from steelyard.model.units import parse_seconds

    if (case is None) == (not words):
        raise UsageError("name either a script or a case with --case", do="see steelyard capture --help")
    limit = parse_seconds(timeout)
    if case is not None:
        if steps or ranks:
            raise UsageError("--steps and --ranks are for scripts", do="leave them out")
        request = Request((case,), axes=read_axes(axes), mode=(mode,) if mode else (), device=(device,) if device else ())
        found = [capture.capture_case(request, find_store(None), output, limit, profile=profile, resources=not no_resources)]
    else:
        if axes or mode or device:
            raise UsageError("-a, --mode and --device are for cases", do="leave them out: a script sets these itself")
        if ranks and ranks > 1 and output.suffix in (".json", ".gz"):
            raise UsageError(f"{output} is one file, and {ranks} ranks write one each", do="name a folder with -o")
        script = capture.ScriptRecording(Path(words[0]), words[1:], ranks, threads, _steps(steps))
        found = capture.capture_script(script, output, limit, profile=profile, resources=not no_resources)
    for item in found:
        _check_recorded(item.trace)
    linked = [_linked(item.trace, item.profile) for item in found]
    if as_json:
        emit_json([{**vars(item), "linked": share} for item, share in zip(found, linked, strict=True)])
        return
    for item, share in zip(found, linked, strict=True):
        say(f"saved {item.trace}{f', with times: {share}' if share else ''}    next: steelyard trace list {item.trace}", aside=True)


def _steps(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    first, end = (int(match[1]), int(match[2]) if match[2] else int(match[1]) + 1) if match else (0, 0)
    if end <= first:
        raise UsageError(f"--steps {text}: not a step or a range of steps", do="write --steps 3 for one step, --steps 3:5 for two")
    return first, end


def _check_recorded(trace: Path) -> None:
    """Raise an error if the trace has no operator."""
    from steelyard.traces.reading import open_trace

    with open_trace(trace) as reader:
        if not any(node.is_operator or node.schema for node in reader):
            raise NothingMeasured(
                "no operator was recorded", why="the recorded code called no PyTorch operator",
                do="record other steps, or a script that uses PyTorch", where=str(trace),
            )  # fmt: skip


def _linked(trace: Path, profile: Path | None) -> str:
    """Put the profiler's times into the trace itself, and return how many nodes have one, in words."""
    if profile is None:
        return ""
    from steelyard.traces.linking import link, saved

    texts, found = link(trace, profile)
    saved(texts(), trace)
    return f"{found.matched} of {found.nodes} nodes, by {found.by}"
