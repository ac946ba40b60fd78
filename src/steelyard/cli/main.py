"""The entry point: lists every command without importing any, and turns every failure into an exit code."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from steelyard.cli.streams import ReaderGone, complain, guarded
from steelyard.dialects.commands import Names
from steelyard.errors import BUG, INTERRUPTED, PASS, USAGE, SteelyardError, unknown
from steelyard.version import __version__

BROKEN_PIPE = 141
OBJECTS_BETWEEN_SWEEPS = 100_000
"""Garbage collection threshold. A run of 10,000 cases makes many objects without cycles; at Python's default of 700, collection took
a fifth of the time of `show`."""
COMPLETION_VARIABLE = "_STEELYARD_COMPLETE"
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("steelyard.cli.run", "Measure workloads, suites, experiments, .py files or a command."),
    "list": ("steelyard.cli.list", "List workloads, variants, backends, suites, metrics, saved runs."),
    "show": ("steelyard.cli.show", "Show a run, one of its records, or a workload in full."),
    "gate": ("steelyard.cli.gate", "Judge a change by a policy, with an exit code for CI."),
    "compare": ("steelyard.cli.compare", "Compare two sides of saved results, case by case."),
    "report": ("steelyard.cli.report", "Make a page, table, picture or site from saved results."),
    "query": ("steelyard.cli.query", "Query all saved runs in SQL, with DuckDB."),
    "sync": ("steelyard.cli.sync", "Send saved runs that are waiting here to a shared store."),
    "nightly": ("steelyard.cli.nightly", "Run, archive by date, compare with the last good night, report."),
    "farm": ("steelyard.cli.farm", "Show a run on other machines: stations, rate, time left."),
    "doctor": ("steelyard.cli.doctor", "Check whether this machine is fit to measure."),
    "as": ("steelyard.cli.as_", "Take another tool's flags and write its own output: as NAME …"),
    "convert": ("steelyard.cli.convert", "Turn another tool's config into an experiment file."),
    "export": ("steelyard.cli.export", "Write a saved run as another tool's results file."),
    "capture": ("steelyard.cli.capture", "Record an execution trace of a script or a case."),
    "trace": ("steelyard.cli.trace", "Inspect an execution trace: operators, tree, counts."),
    "judge": ("steelyard.cli.judge", "Judge candidates against a reference: right, faster, or cheating."),
    "check": ("steelyard.cli.check", "Check files without measuring: keys, names, shapes."),
    "artifacts": ("steelyard.cli.artifacts", "Export models as programs on disk; check, publish, fetch them."),
    "env": ("steelyard.cli.env", "Create environments for stacks that cannot be installed together."),
    "new": ("steelyard.cli.new", "Create a first file: workload, variant, metric or experiment."),
}


class Commands(Names):
    """The commands by name with one line of help; a command's module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def print_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    """Print a shell's completion script, to be sourced from its start-up file."""
    if shell and not ctx.resilient_parsing:
        from click.shell_completion import get_completion_class

        found = get_completion_class(shell)
        assert found is not None
        click.echo(found(cli, {}, "steelyard", COMPLETION_VARIABLE).source())
        ctx.exit()


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="steelyard %(version)s", help="Print the version.")
@click.option("--debug", is_flag=True, expose_value=False, help="Print tracebacks.")
@click.option(
    "--completion", type=click.Choice(["bash", "zsh", "fish"]), is_eager=True, expose_value=False, callback=print_completion,
    help="Print the completion script of a shell.",
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Weigh any ML workload, on any stack, against any other, and trust the answer.

    \b
    steelyard run op/softmax -V eager,compile --vs eager
    steelyard show latest
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; exceptions become messages only here."""
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.set_threshold(OBJECTS_BETWEEN_SWEEPS)
    with guarded():
        return _outcome(args)


def _outcome(args: list[str]) -> int:
    try:
        code = _complete() if COMPLETION_VARIABLE in os.environ else _dispatch(args)
        sys.stdout.flush()
        return code
    except (ReaderGone, BrokenPipeError):
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        return _report(error, debug=_asks_for_debug(args))


def _dispatch(args: list[str]) -> int:
    try:
        with cli.make_context("steelyard", list(args), obj=tuple(args)) as ctx:
            code = cli.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    return code if isinstance(code, int) else PASS


def _complete() -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {}, "steelyard", COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE])


def _asks_for_debug(args: list[str]) -> bool:
    """Whether `--debug` was given before the command; after it, the flag may belong to a measured shell command."""
    command = next((index for index, arg in enumerate(args) if not arg.startswith("-")), len(args))
    return "--debug" in args[:command]


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        error = _usage(error)
    if isinstance(error, SteelyardError):
        complain(str(error))
        return error.exit_code
    line = " ".join(f"{type(error).__name__}: {error}".split())
    complain(f"this is a bug in steelyard\n{line}" + ("" if debug else "\nfor the traceback: steelyard --debug … (the same command)"))
    return BUG


def _usage(error: click.ClickException) -> SteelyardError:
    """Convert a click error to ours, with the nearest option if one was mistyped."""
    from steelyard.errors import UsageError

    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "steelyard"
    if isinstance(error, click.NoSuchOption) and ctx:
        options = [name for parameter in ctx.command.get_params(ctx) for name in parameter.opts if name.startswith("--")]
        return unknown("option", error.option_name, options, listing=f"{path} --help")
    message = re.sub(r"\s*[\n\t]\s*", " ", error.format_message()).strip().rstrip(".")
    return UsageError(message[:1].lower() + message[1:], do=f"see {path} --help")
