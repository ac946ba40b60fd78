"""`steelyard as DIALECT`: another tool's own flags, and its own output."""

from __future__ import annotations

from collections.abc import Iterator

import click

from steelyard import registry
from steelyard.cli.output import CONTEXT
from steelyard.dialects.commands import Names
from steelyard.errors import USAGE
from steelyard.model.dialect import Program


class Dialects(Names):
    """A command for each dialect; a dialect is imported only when it is called."""

    kind = "dialect"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [program.name for program in _programs()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return next((_loaded(program) for program in _programs() if program.name == cmd_name), None)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Accept `param replay` for the dialect param-replay: a dialect's further programs may be written as two words."""
        joined = "-".join(args[:2])
        if len(args) > 1 and any(program.name == joined for program in _programs()):
            args = [joined, *args[2:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Dialects"):
            formatter.write_dl([(program.name, program.doc) for program in _programs()])


def _programs() -> Iterator[Program]:
    """Yield the programs of all dialects, built-in ones first, so that a broken third-party package cannot hide them."""
    for dialect in registry.dialects():
        yield from dialect.commands()


def _loaded(program: Program) -> click.Command:
    command: click.Command = registry.attribute(program.command)
    return command


@click.group("as", cls=Dialects, invoke_without_command=True, context_settings=CONTEXT, short_help="Another tool's flags and output.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Take another benchmark's own flags and write its own output format.

    \b
    steelyard as param -c config.json -w 5 -i 20 -b
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(USAGE)
