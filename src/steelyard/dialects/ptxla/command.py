"""`steelyard as ptxla`: PyTorch/XLA's benchmark programs, each with its own flags and output."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard import terminal
from steelyard.dialects.commands import Names
from steelyard.dialects.ptxla import microbench_command, runner_command
from steelyard.errors import PASS, UsageError, unknown
from steelyard.terminal import CONTEXT, save, warn

if TYPE_CHECKING:
    from steelyard.dialects.ptxla.aggregate import Report


class Programs(Names):
    """The original's programs by name."""

    kind = "program of ptxla"


@click.group("ptxla", cls=Programs, context_settings=CONTEXT)
def ptxla() -> None:
    """PyTorch/XLA's benchmarks: run experiments, and analyze and aggregate their JSONL results.

    \b
    steelyard as ptxla runner --suite-name=dummy --accelerator=cpu --output-dirname=experiment_results
    steelyard as ptxla analyze --output-dirname=experiment_results
    steelyard as ptxla aggregate --accelerator=h200 --report=latest results/*.jsonl
    """


ptxla.add_command(runner_command.command())
ptxla.add_command(microbench_command.microbench)


class Aggregate(click.Command):
    """Takes `--backends A B C` as the original does: every word up to the next option, `--`, or the first file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _spread_backends(args))


def _spread_backends(args: list[str]) -> list[str]:
    """`--backends A B` as `--backends A --backends B`; a word that is not a backend ends the list if a file has that name."""
    from steelyard.dialects.ptxla.rows import BACKENDS

    given: list[str] = []
    listing = False
    for place, word in enumerate(args):
        if word == "--":
            return [*given, *args[place:]]
        if word.startswith("-"):
            listing = word == "--backends"
            if listing and (place + 1 == len(args) or args[place + 1].startswith("-")):
                raise UsageError("--backends needs a name", do=f"name one of {', '.join(BACKENDS)}")
            given += [] if listing else [word]
        elif listing and (word in BACKENDS or not Path(word).exists()):
            if word not in BACKENDS:
                raise unknown("backend", word, BACKENDS)
            given += ["--backends", word]
        else:
            given, listing = [*given, word], False
    return given


@ptxla.command("aggregate", cls=Aggregate, context_settings=CONTEXT)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--accelerator", default="v100", show_default=True, metavar="NAME", help="v100, a100, a6000, cpu, or any part of a device's name."
)
@click.option("--test", type=click.Choice(["inference", "training"]), default="inference", show_default=True, help="Which rows to read.")
@click.option(
    "--report",
    "kind",
    type=click.Choice(["latest", "latest_grouped", "histogram", "speedup"]),
    default="speedup",
    show_default=True,
    help="What to report.",
)
@click.option(
    "--format", "form", type=click.Choice(["csv", "tab", "ascii", "png", "svg"]), default="csv", show_default=True, help="How to write it."
)
@click.option(
    "--metric",
    type=click.Choice(["exec", "compile", "mean", "median"]),
    default="exec",
    show_default=True,
    help="Time of execution by its mean (exec, mean) or median, or time to compile.",
)
@click.option(
    "--baseline",
    type=click.Choice(["oldest", "latest"]),
    default="oldest",
    show_default=True,
    help="Which baseline times speedups are over.",
)
@click.option(
    "--backends",
    multiple=True,
    metavar="NAME...",
    help="eager, inductor, openxla+dynamo, openxla+lazytensor; the first is the "
    "baseline. End the list with -- before files.  [default: inductor openxla+dynamo]",
)
@click.option("-k", "--filter", "filters", multiple=True, metavar="REGEX", help="Only models in whose name this is found; repeatable.")
@click.option(
    "-x", "--exclude", "excludes", multiple=True, metavar="REGEX", help="Leave out models in whose name this is found; repeatable."
)
@click.option("--filter-by-tier", "tiers", multiple=True, type=int, metavar="N", help="Only models of tier 1, 2 or 3; repeatable.")
@click.option("--exclude-by-tier", "exclude_tiers", multiple=True, type=int, metavar="N", help="Leave out models of this tier; repeatable.")
@click.option("--title", default="", metavar="TEXT", help="A second line for the title of a chart.")
@click.option("--fig-width", type=float, default=9.0, show_default=True, metavar="INCHES", help="Width of a picture.")
@click.option("--fig-height", type=float, default=6.75, show_default=True, metavar="INCHES", help="Height of a picture.")
@click.option("--paired", is_flag=True, help="Only models that all backends have, with their number and how many passed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here instead of to stdout.")
@click.option("--strict-exit", is_flag=True, help="Exit with 5 if nothing is found; the original exits with 1.")
def aggregate(
    files: tuple[Path, ...], form: str, title: str, fig_width: float, fig_height: float, output: Path | None,
    kind: str, backends: tuple[str, ...], **given: Any,
) -> int:  # fmt: skip
    """Report speedups over a baseline backend, from the JSONL files of the runner.

    Rows left out are counted on stderr: those blank, cut short, without times or of other accelerators.

    \b
    steelyard as ptxla aggregate --accelerator=v100 --report=latest --format=ascii results/*.jsonl
    steelyard as ptxla aggregate --backends inductor openxla+dynamo openxla+lazytensor -- results/*.jsonl
    """
    from steelyard.dialects.ptxla import aggregate as reports
    from steelyard.dialects.ptxla.rows import RowTally, read

    words = {"report": kind, **given, **({"backends": backends} if backends else {})}
    tally = RowTally()
    question = reports.ReportQuestion(**words)
    notes: list[str] = []
    found = None
    try:
        found = reports.report((row for path in files for row in read(path, tally)), question, tally, notes.append)
    finally:
        for text in [*tally.lines(), *notes]:
            warn(text)
    if found is not None:
        _hand_out(_written(found, form, title, fig_width, fig_height), output, form)
    return PASS


def _written(report: Report, form: str, title: str, width: float, height: float) -> str | bytes:
    from steelyard.dialects.ptxla import charts, tables

    if form in ("png", "svg"):
        return charts.draw(report, form, title, width, height)
    if form == "ascii":
        return tables.ascii_chart(report, title, terminal.width())
    return tables.csv(report) if form == "csv" else tables.tab(report)


def _hand_out(made: str | bytes, output: Path | None, form: str) -> None:
    """Write to a file or to stdout, but no picture to a terminal."""
    if output is not None:
        save(output, made)
    elif isinstance(made, str):
        click.echo(made, nl=False)
    else:
        if sys.stdout.isatty():
            raise UsageError(f"cannot print {form} to a terminal", do=f"send it to a file: > report.{form}, or --format ascii")
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()


@ptxla.command("analyze", context_settings=CONTEXT)
@click.option(
    "--output-format", "form", type=click.Choice(["csv", "jsonl"]), default="csv", show_default=True, help="Format of the report."
)
@click.option(
    "--output-dirname",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("./output/"),
    show_default=True,
    metavar="DIR",
    help="Folder of the runner's .jsonl files; metric_report.* is written there.",
)
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    default=Path("./output/database.csv"),
    show_default=True,
    metavar="FILE",
    help="CSV that the rows are added to; not with --output-format=jsonl.",
)
@click.option("--timestamp", type=float, metavar="SECONDS", help="Timestamp for rows that have none; now by default.")
@click.option("--hide-errors", is_flag=True, help="Leave out the messages of rows that failed.")
@click.option("--log-level", type=click.Choice(["info", "warning"]), default="warning", show_default=True, help="Log level.")
@click.option(
    "--experiment-name",
    type=click.Choice(["run_all"]),
    default="run_all",
    show_default=True,
    expose_value=False,
    help="Accepted and ignored.",
)
def analyze(form: str, folder: Path, database: Path, timestamp: float | None, hide_errors: bool, log_level: str) -> int:
    """Write a table of minimum, median, maximum, mean and deviation of every metric of every row in a folder.

    \b
    steelyard as ptxla analyze --output-dirname=experiment_results
    """
    from steelyard.dialects.ptxla import analyze as analysis
    from steelyard.dialects.ptxla.rows import RowTally

    tally = RowTally()
    order = analysis.Order(folder, database, form, datetime.now().timestamp() if timestamp is None else timestamp, hide_errors)
    try:
        done = analysis.analyze(order, tally)
    finally:
        for text in tally.lines():
            warn(text)
    if form == "jsonl":
        click.echo(f"Saving report to: {done.file.resolve()}")
    if form != "jsonl" or log_level == "info":
        click.echo(f"{done.rows} rows of {done.files} files · saved {done.file}", err=True)
    return PASS
