"""Shared parts of the commands below `steelyard as`: options and subcommands with another tool's names, log levels, counted statuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from steelyard.dialects.options import Flag, PlainOptions
from steelyard.errors import USAGE, UsageError, unknown

LOUDNESS = {"DEBUG": 0, "INFO": 1, "WARNING": 2, "ERROR": 3, "CRITICAL": 4}
"""Log levels, from the most verbose to the quietest."""


ENV = click.option("--env", default="", metavar="NAME", help="Run in this environment, from steelyard env create.")
STRICT_EXIT = click.option("--strict-exit", is_flag=True, help="Exit with 3 if something failed and 5 if nothing was measured.")
"""Flags that we add to the original's."""


class Names(click.Group):
    """A group that lists its commands as they were defined, suggests the nearest name for a wrong one, and prints its help without one."""

    kind = "command"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = args[0].startswith("-") or ctx.resilient_parsing or self.get_command(ctx, args[0])
        if not known:
            raise unknown(self.kind, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class MaybeBare(click.Choice[str]):
    """A choice that also accepts the flag without a value, as an empty text; the reader of the options decides what that means."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return "" if value == "" else str(super().convert(value, param, ctx))


def option(flag: Flag, defaults: PlainOptions) -> click.Option:
    """Return the click option for one entry of a table of flags; its default is that of the field it sets."""
    default = getattr(defaults, flag.key)
    words: dict[str, Any] = {"required": True} if flag.required else {"default": default, "show_default": bool(default)}
    types = {"count": click.IntRange(min=0), "integer": int, "integers": int, "seconds": float}
    if flag.kind in types:
        words["type"] = types[flag.kind]
    if flag.kind == "switch":
        words["is_flag"] = True
    if flag.kind in ("texts", "integers", "choices"):
        words["multiple"] = True
    if flag.choices:
        words["type"] = MaybeBare(flag.choices) if flag.bare == "" else click.Choice(flag.choices)
        words["metavar"] = f"[{'|'.join(flag.choices)}]"
    if flag.bare is not None:
        words |= {"is_flag": False, "flag_value": flag.bare}
    if flag.metavar:
        words["metavar"] = flag.metavar
    return click.Option([*flag.names, flag.key], help=flag.help, **words)


def spelt(*names: str, **words: Any) -> Callable[[Any], Any]:
    """Return an option that may be written with dashes or with underscores."""
    dashed = [name for name in names if name.startswith("--")]
    return click.option(*names, *(name[:2] + name[2:].replace("-", "_") for name in dashed if "-" in name[2:]), **words)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds several options, in this order."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def status_counts(statuses: Sequence[str]) -> list[str]:
    """Return counts such as `3 ok` and `1 failed`, in the order in which the statuses first occur."""
    return [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]


class Listing(click.Command):
    """A command whose list options take all words up to the next option, as the original's `--include A B`; no word is an empty list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        lists = {name for param in self.params if isinstance(param, click.Option) and param.multiple for name in param.opts}
        return super().parse_args(ctx, spread(args, lists))


def spread(args: list[str], lists: set[str]) -> list[str]:
    """Rewrite `--include A B` as `--include A --include B`."""
    given: list[str] = []
    listing = ""
    for word in args:
        name, sign, value = word.partition("=")
        if word.startswith("-") and not word.lstrip("-").isdecimal():
            listing = name if name in lists else ""
            given += [name, value] if listing and sign else [] if listing else [word]
        else:
            given += [listing, word] if listing else [word]
    return given


def make_folder(path: Path) -> None:
    """Create the folder for results if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {path}", why=error.strerror or str(error), do="name another folder with --output-dir") from None
