"""Writes the reference pages that come from the code, so that they cannot disagree with it.

`make docs` runs it; a test compares what is committed with what it writes.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
from python_page import python_page

from steelyard.cli.main import cli
from steelyard.codec import record_schema, ruling_schema
from steelyard.dialects.v3.schema import schema as database_schema
from steelyard.engine import messages
from steelyard.errors import BUG, FAILED, INCONCLUSIVE, INTERRUPTED, NOTHING, PASS, REGRESSION, USAGE
from steelyard.store.tables import TABLES

PAGES = Path(__file__).parent.parent / "docs" / "reference"
EXIT_CODES = {
    PASS: "done, and every case that could be measured is ok",
    BUG: "a bug in Steelyard; `steelyard --debug …` prints the traceback",
    USAGE: "the command, a file or a name in it is wrong; nothing was timed",
    FAILED: "some cases failed, crashed, ran out of time or memory, or gave a wrong answer; or `doctor --strict` found an unfit machine",
    REGRESSION: "kept for a regression (no command gives it yet)",
    NOTHING: "nothing was measured, for instance because every case is `unsupported`",
    INCONCLUSIVE: "kept for an inconclusive comparison (no command gives it yet)",
    INTERRUPTED: "interrupted; the finished cases are saved",
}


def main() -> None:
    """Write the pages, into docs/reference or another folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=PAGES, metavar="DIR", help="folder to write to")
    folder = parser.parse_args().to
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Every generated page by file name."""
    schema = json.dumps(record_schema(), indent=2, ensure_ascii=False) + "\n"
    database = json.dumps(database_schema(), indent=2, ensure_ascii=False) + "\n"
    rulings = json.dumps(ruling_schema(), indent=2, ensure_ascii=False) + "\n"
    return {
        "cli.md": cli_page(),
        "pipe.md": pipe_page(),
        "python.md": python_page(),
        "tables.md": tables_page(),
        "record.schema.json": schema,
        "ruling.schema.json": rulings,
        "v3.schema.json": database,
    }


def tables_page() -> str:
    """The tables that `steelyard query` reads, column by column."""
    parts = ["# Tables for SQL", "Written by `make docs` from `src/steelyard/store/tables.py`; change it there."]
    parts.append(
        "What [steelyard query](../howto/query.md) reads. Times are UTC, quantities in seconds and bytes; null is unknown or not measured."
    )
    for name, columns in TABLES.items():
        rows = [f"| `{column.name}` | {column.type} | {column.holds} |" for column in columns]
        parts += [f"## {name}", "\n".join(["| column | type | holds |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def pipe_page() -> str:
    """What the conductor and a worker say to each other, message by message."""
    parts = ["# The pipe", "Written by `make docs` from `src/steelyard/engine/messages.py`; change it there."]
    parts.append(
        "The conductor (the command you typed) measures nothing itself. It starts workers, hands them jobs and hears their answers, "
        f"one JSON object per line, whose key `{messages.KIND}` names the message. Version {messages.VERSION}. Raw samples travel as "
        "base64. A line that is no message at all is not heard; one that claims to be a message and is not sound ends the worker, and "
        "costs the case that ran."
    )
    for title, kinds in (("Jobs and orders", messages.Order.__args__), ("Answers", messages.Answer.__args__)):
        rows = "\n".join(f"| `{kind.__name__}` | {_fields(kind)} | {' '.join((kind.__doc__ or '').split())} |" for kind in kinds)
        parts += [f"## {title}", f"| message | fields | means |\n|---|---|---|\n{rows}"]
    return "\n\n".join(parts) + "\n"


def _fields(kind: type) -> str:
    return ", ".join(f"`{item.name}: {str(item.type).replace('|', chr(92) + '|')}`" for item in dataclasses.fields(kind)) or "none"


def cli_page() -> str:
    """All commands with their options, and the exit codes."""
    parts = ["# Commands", "Written by `make docs` from the code; change it there."]
    parts += [section(path, command) for path, command in commands(cli, "steelyard")]
    codes = "\n".join(f"| {code} | {words} |" for code, words in EXIT_CODES.items())
    parts += ["## Exit codes", f"| code | means |\n|---|---|\n{codes}", "When several hold, the first of 2, 130, 5, 4, 3, 6 is given."]
    return "\n\n".join(parts) + "\n"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, in the order of its help."""
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command, info_name=path)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


def section(path: str, command: click.Command) -> str:
    """One command: its usage line, its words, a table of options."""
    ctx = click.Context(command, info_name=path)
    pieces = " ".join(command.collect_usage_pieces(ctx))
    parts = [f"## {path}", f"```\n{path} {pieces}\n```", *words(inspect.cleandoc(command.help or ""))]
    rows = [f"| `{names(option)}` | {cell(option.help or '')} |" for option in command.get_params(ctx) if isinstance(option, click.Option)]
    return "\n\n".join([*parts, "| option | does |\n|---|---|\n" + "\n".join(rows)])


def words(text: str) -> Iterator[str]:
    """Help text as paragraphs; click's unwrapped blocks are examples."""
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("\b\n"):
            yield "```\n" + block.removeprefix("\b\n") + "\n```"
        else:
            yield " ".join(block.split())


def names(option: click.Option) -> str:
    """`-a, --axis NAME=VALUES`."""
    spelled = ", ".join(option.opts) + (f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else "")
    if option.is_flag or option.count:
        return spelled
    kind = option.type
    value = option.metavar or (
        "[" + "|".join(map(str, kind.choices)) + "]" if isinstance(kind, click.Choice) else kind.name.split()[0].upper()
    )
    return cell(f"{spelled} {value}")


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
