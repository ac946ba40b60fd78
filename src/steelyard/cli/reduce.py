"""`steelyard artifacts reduce`: shrinks a program that is wrong, fails or is slow, for a bug report."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, say, store_option, tell
from steelyard.errors import UsageError

if TYPE_CHECKING:
    from steelyard.engine.reducing import CutQuestion, CutStep

PROGRAM, COMMAND = "reduced.mlir", "reproduce.txt"


@click.command("reduce", context_settings=CONTEXT)
@click.argument("case", metavar="CASE")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder for the reproducer.")
@click.option("-B", "--backend", metavar="NAME", help="With artifact:FILE: the backend that is wrong or slow.")
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="With artifact:FILE: an environment variable of the case, such as XLA_FLAGS.",
)
@click.option("--against", default="interpreter", show_default=True, metavar="BACKEND", help="The backend whose answers count as correct.")
@click.option(
    "--vs",
    metavar="BASE",
    help="Reduce a slowdown: the program must stay slower than this base (flags:'…', env:NAME, xla/eager, as in run).",
)
@click.option("--margin", metavar="SHARE", help="With --vs: how much slower counts. Default 2%.")
@click.option(
    "--time-limit", default="10m", show_default=True, metavar="TIME", help="Time limit; the smallest reproducer found by then is kept."
)
@store_option
@json_option
def command(**options: Any) -> int:
    """Shrink the exported program of a CASE to the smallest one that still shows the same wrong answer, failure or slowdown.

    CASE is the id of a case, or artifact:FILE with -B. Each smaller program runs in workers of its own; a wrong answer is one that differs
    from that of the --against backend for the same program.

    \b
    steelyard artifacts reduce artifact:model.mlir -B iree -o bug
    steelyard artifacts reduce artifact:model.mlir -B xla --vs flags:--xla_cpu_enable_fast_math=true -o slow
    """
    import tempfile

    from steelyard.engine.reducing import read_case, reduce_program
    from steelyard.model.units import parse_seconds
    from steelyard.terminal import heed_signals

    output: Path = options["output"]
    if (output / PROGRAM).exists():
        raise UsageError(f"{output / PROGRAM} exists already", do="name another folder with -o")
    question = _question(options)
    until = time.monotonic() + parse_seconds(options["time_limit"])
    heed_signals()
    with tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True) as folder:
        whole = read_case(question.case, Path(folder))
        judge = question.judge(Path(folder))
        found = reduce_program(whole, judge, until, _progress)
        complete = time.monotonic() < until
        symptom = judge(found.text())
    output.mkdir(parents=True, exist_ok=True)
    (output / PROGRAM).write_text(found.text(), encoding="utf-8")
    line = repeat_line(question, output / PROGRAM)
    kind = symptom.kind if symptom else "the symptom could not be reproduced: it does not show every time"
    reason = " ".join(symptom.words.split()) if symptom else ""
    (output / COMMAND).write_text(f"{line}\n# {kind}: {reason}\n" if reason else f"{line}\n", encoding="utf-8")
    if options["as_json"]:
        told = {"symptom": kind, "reason": reason, "command": line, "program": str(output / PROGRAM), "complete": complete}
        emit_json(told | {"operations": len(found.statements), "before": len(whole.statements)})
    else:
        say(f"{len(whole.statements)} operations → {len(found.statements)}, {kind}: {output / PROGRAM}")
        for text in (
            reason,
            "" if complete else f"the search stopped at the time limit of {options['time_limit']}: a smaller one may exist",
        ):
            say(f"  {text}") if text else None
        say(f"  reproduce it: {line}")
    return 0


def _question(options: dict[str, Any]) -> CutQuestion:
    """The case to reduce, and the settings it is measured with."""
    from dataclasses import replace

    from steelyard.cli.run import read_flag
    from steelyard.engine import conduct, sides
    from steelyard.engine.reducing import WORKLOAD, CutQuestion
    from steelyard.engine.selection import Request
    from steelyard.model.experiment import Settings
    from steelyard.model.units import parse_share

    if options["vs"] and not sides.is_side(options["vs"]) and "/" not in options["vs"]:
        raise UsageError(f"{options['vs']} cannot be the base of an exported program", do="flags:'…', env:NAME, or BACKEND/eager")
    request = Request(
        selectors=(options["case"],), backend=(options["backend"],) if options["backend"] else (),
        flags=dict(read_flag(text) for text in options["flags"]), settings={"vs": options["vs"]} if options["vs"] else {},
    )  # fmt: skip
    ready = conduct.prepare(request, find_store(options["store"]))
    cases = [job.case for job in ready.jobs if job.vs or not options["vs"]]
    if strange := [case.id for case in cases if case.workload != WORKLOAD]:
        raise UsageError(f"{strange[0]} is not an exported program", do="name artifact:FILE, or the id of a case of an exported program")
    if len(cases) != 1:
        raise UsageError(
            f"{options['case']} is {len(cases)} cases", why="only one program can be reduced at a time", do="name one program, and -B"
        )
    asked = {"vs": options["vs"]} | ({"margin": parse_share(options["margin"])} if options["margin"] else {})
    quick = Settings(budget=0.3, settle=1.0) if options["vs"] else Settings(budget=1e-3, telemetry=False)
    return CutQuestion(cases[0], options["against"], replace(quick, **asked))


def _progress(step: CutStep) -> None:
    count = len(step.program.statements)
    tell(f"  {count} operation{'' if count == 1 else 's'}: {'the same symptom, kept' if step.kept else 'not the same symptom'}")


def repeat_line(question: CutQuestion, file: Path) -> str:
    """The command that reproduces the symptom of a program in a file."""
    case, vs = question.case, question.settings.vs
    backends = case.backend if vs else f"{question.against},{case.backend}"
    flags = [word for name, value in case.flags for word in ("--flag", f"{name}={value}")]
    rest = [*(["--env", case.env] if case.env else []), *(["--vs", vs] if vs else [])]
    return shlex.join(["steelyard", "run", f"artifact:{file}", "-B", backends, *flags, *rest])
