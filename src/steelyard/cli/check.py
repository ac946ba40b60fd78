"""`steelyard check`: validate files without measuring anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, say, store_option
from steelyard.errors import PASS, USAGE

if TYPE_CHECKING:
    from pathlib import Path

    from steelyard.engine.check import Checked, ShapeCheck


@click.command("check", context_settings=CONTEXT)
@click.argument("words", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--file", "files", multiple=True, metavar="FILE.py", help="Python file that defines operators or workloads the checked files use."
)
@click.option("--shapes/--no-shapes", default=True, help="Check shapes: call each case once on meta tensors (needs torch). Default on.")
@store_option
@json_option
def command(words: tuple[str, ...], files: tuple[str, ...], shapes: bool, store: Path | str | None, as_json: bool) -> int:
    """Check files without measuring anything: experiments (TOML, YAML, JSON), PARAM configs, workloads in .py files, gate policies,
    lists of expected failures, saved runs and other tools' result files.

    Prints what each file is, every mistake in it, how many cases would run, and which rule drops the rest. The exit code is 2 if
    anything is wrong.

    \b
    steelyard check sweep.toml policy.toml
    steelyard check gemm.json --file my_operators.py
    """
    from steelyard.engine.check import check_file

    kept = find_store(store)
    found = [check_file(word, kept, files, shapes=shapes) for word in words]
    wrong = [item for item in found if item.mistakes]
    if as_json:
        emit_json({"files": found, "exit_code": USAGE if wrong else PASS})
    else:
        for item in found:
            say(_summary(item))
            for line in [*item.mistakes, *shape_words(item.shapes)]:
                say(line, indent="    ")
        count = f"{len(found)} file{'' if len(found) == 1 else 's'}"
        click.echo(f"{count} checked · {len(wrong) or 'none'} with mistakes · nothing measured", err=True)
    return USAGE if wrong else PASS


def _summary(item: Checked) -> str:
    """One line for a file: what it is, how many cases it would run, how many mistakes it has."""
    facts = [item.kind] if item.kind else []
    if item.cases is not None:
        facts.append(f"{item.cases} case{'' if item.cases == 1 else 's'} would run")
    facts += [f"{count} dropped by {rule}" for rule, count in item.dropped.items()]
    facts += item.notes
    count = len(item.mistakes)
    facts += [f"{count} mistake{'' if count == 1 else 's'}"] if count else []
    return f"{'✗' if count else '✓'} {item.file}  {' · '.join(facts)}"


def shape_words(shapes: ShapeCheck | None) -> Iterator[str]:
    """Yield lines on how many shapes fit, and why the rest could not be checked."""
    if shapes is None:
        return
    if shapes.fit:
        yield f"shapes of {shapes.fit} case{'' if shapes.fit == 1 else 's'} fit"
    for reason, count in shapes.unchecked.items():
        yield f"shapes of {count} case{'' if count == 1 else 's'} not checked: {reason}"
