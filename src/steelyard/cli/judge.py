"""`steelyard judge`: rule on candidates for a problem, with answers that cannot be cheated."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from steelyard.cli.output import CONTEXT, emit_json, json_option, say
from steelyard.errors import FAILED, INCONCLUSIVE, NOTHING, PASS
from steelyard.model.judging import PRECISIONS
from steelyard.model.units import parse_bytes, parse_seconds


@click.command("judge", context_settings=CONTEXT)
@click.argument("reference", metavar="REFERENCE")
@click.argument("candidates", nargs=-1, required=True, metavar="CANDIDATE...")
@click.option("--only", multiple=True, metavar="NAME", help="Only this problem of several; repeatable.")
@click.option("-d", "--device", default="cpu", help="Where to judge: cpu or cuda. Default cpu.")
@click.option("--budget", default="normal", help="Timed calls for each candidate: quick, normal, thorough, or seconds.")
@click.option("--margin", default="2%", help="Differences below this are the same. Default 2%.")
@click.option("--timeout", default="60s", help="Time limit for one step of a candidate. Default 60s.")
@click.option("--memory", default=None, help="Memory limit for a candidate's processes, such as 4GiB.")
@click.option("--threads", default=1, type=click.IntRange(1), help="Threads that the contract allows. Default 1.")
@click.option("--in-place", is_flag=True, help="Contract: calls may change their inputs.")
@click.option("--persistent", multiple=True, type=click.IntRange(0), metavar="N", help="Contract: input N is the same in every call.")
@click.option("--reuses-output", is_flag=True, help="Contract: an output is valid until the next call only.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Contract: the coarsest arithmetic that is admitted.")
@click.option("--rtol", type=float, help="Relative tolerance in place of our own rule.")
@click.option("--atol", type=float, help="Absolute tolerance in place of our own rule.")
@click.option("--kernels", is_flag=True, help="List what each candidate launches.")
@click.option("--strict", is_flag=True, help="Exit 6 if the time of a right candidate is unclear.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Append each ruling to this file as a line of JSON.")
@json_option
def command(
    reference: str, candidates: tuple[str, ...], only: tuple[str, ...], strict: bool, output: Path | None, as_json: bool, **given: Any
) -> int:
    """Judge candidates against a reference: is the answer right, is it faster, and did it cheat?

    The code of both is run: judge only what you would run. Each candidate has processes of its own; expected answers and the clock
    that decides are in others. Layouts: plain Python files, KernelBench, gpu-mode, FlashInfer-Bench, BackendBench.

    \b
    steelyard judge reference.py candidate.py
    steelyard judge reference.py candidates/*.py -d cuda -o rulings.jsonl
    """
    import json

    from steelyard.engine.referee import judging
    from steelyard.refereeing import judge_options
    from steelyard.report.rulings import lines

    found = []
    chosen = judge_options(_options(given))
    for ruling in judging.judge_all(reference, candidates, chosen, only, lambda who: say(f"waiting for {who}")):
        found.append(ruling)
        if output is not None:
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(ruling), default=str) + "\n")
        if not as_json:
            for line in lines(ruling):
                click.echo(line)
    code = _exit_code(found, strict=strict)
    if as_json:
        emit_json({"rulings": [asdict(ruling) for ruling in found], "exit_code": code})
    else:
        right = sum(ruling.correct for ruling in found)
        click.echo(f"{len(found)} judged · {right} correct", err=True)
    return code


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Options that were given, in the words of `steelyard.judge`."""
    found = {name: value for name, value in given.items() if value not in (None, False, ())}
    found["timeout"] = parse_seconds(given["timeout"])
    if given["memory"] is not None:
        found["memory"] = parse_bytes(given["memory"])
    return found


def _exit_code(found: list[Any], *, strict: bool) -> int:
    if not found or all(ruling.status == "unsupported" for ruling in found):
        return NOTHING
    if any(not ruling.correct for ruling in found):
        return FAILED
    unclear = any(ruling.delta is None or ruling.delta.verdict == "unclear" for ruling in found)
    return INCONCLUSIVE if strict and unclear else PASS
