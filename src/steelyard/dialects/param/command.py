"""PARAM's programs under `steelyard as`: run_benchmark with its flags, log lines and output file, and nsys_analysis."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.dialects.commands import LOUDNESS, option, status_counts
from steelyard.dialects.param.flags import FLAGS, LEVELS, Options
from steelyard.errors import INTERRUPTED, PASS, unknown
from steelyard.terminal import CONTEXT, heed_signals, save, tell
from steelyard.version import __version__

if TYPE_CHECKING:
    from steelyard.dialects.param.expand import Mistake
    from steelyard.dialects.param.lines import Line
    from steelyard.dialects.param.session import Session
    from steelyard.dialects.param.watching import ConfigWatch


@click.command("param-nsys", context_settings=CONTEXT)
@click.option("-f", "--file", required=True, metavar="FILE.sqlite", help="The .nsys-rep file, exported with 'nsys export --type sqlite'.")
@click.option("-o", "--output", metavar="FILE", help="Write the lines here instead of to stdout.")
def analyse_nsys(file: str, output: str | None) -> int:
    """Print a JSON line for every operator of a run with --nsys, with these times of its ranges in nanoseconds: whole, before the
    first kernel, in kernels, after the last kernel, and in the last wait.

    \b
    nsys export --type sqlite results_nsys.nsys-rep
    steelyard as param-nsys -f results_nsys.sqlite
    """
    from steelyard.dialects.param import nsys

    text = "".join(json.dumps(line) + "\n" for line in nsys.breakdown(Path(file)))
    if output is None:
        click.echo(text, nl=False)
        return PASS
    save(Path(output), text)
    return PASS


def run(**given: Any) -> int:
    """Print the usage if no config is named, as PARAM does; else run everything."""
    if click.get_current_context().invoked_subcommand is not None:
        return PASS
    if given.pop("version"):
        click.echo(f"steelyard {__version__}")
        return PASS
    if not given["config"]:
        click.echo(click.get_current_context().get_usage())
        return PASS
    from steelyard.dialects.param import session
    from steelyard.store.runs import Store

    strict_exit = given.pop("strict_exit")
    options = _options(given)
    command = click.get_current_context().find_root().obj or ()
    made = session.begin(options, _watch(options.log_level), store=Store.find(), command=command)
    heed_signals()
    try:
        code = made.run(Path(options.config))
    except KeyboardInterrupt:
        tell(f"interrupted: {_counted(made) if made.statuses or made.mistakes else 'nothing was measured'}{_saved(made)}")
        if made.place and made.statuses:
            tell(f"  continue: the same command with -o {shlex.quote(str(made.place.file))} -a")
        return INTERRUPTED
    if LOUDNESS[made.options.log_level] <= LOUDNESS["INFO"]:
        tell(f"{_counted(made)}{_saved(made)}")
    if "benchmark_file" in made.files:
        click.echo(made.files["benchmark_file"])
    return code if strict_exit else made.original_code(code)


strict = click.Option(
    ["--strict-exit"], is_flag=True,
    help="Exit with 3 if a config is wrong or failed, with 5 if nothing was measured; PARAM exits with 0, or 1 after a failed call.",
)  # fmt: skip
version = click.Option(["--version"], is_flag=True, help="Print the version.")


class ParamPrograms(click.Group):
    """PARAM's other programs under `as param`, imported when called; without a program's name, run_benchmark runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PROGRAMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from steelyard import registry

        found: click.Command | None = registry.attribute(PROGRAMS[cmd_name]) if cmd_name in PROGRAMS else None
        return found


PROGRAMS = {
    "comm-replay": "steelyard.dialects.param.comm_replay:command",
    "trace-tool": "steelyard.dialects.param.traces:trace_tool",
    "validate": "steelyard.dialects.param.traces:validate",
}
"""By name, each as `package.module:attribute`."""
command = ParamPrograms(
    "param", callback=run, invoke_without_command=True, subcommand_metavar="[PROGRAM …]", context_settings=CONTEXT,
    params=[*(option(flag, Options()) for flag in FLAGS), strict, version],
    help="""Run a PARAM config as its run_benchmark does, and write its JSON lines: a header, a record per config, a finish line.

    \b
    steelyard as param -c config.json -w 5 -i 20 -b
    steelyard as param -c config.json -d cuda --exec-mode continuous_events -o results.json -a
    """,
)  # fmt: skip


def _options(given: dict[str, Any]) -> Options:
    from steelyard.model.units import parse_seconds

    if given["timeout"] is not None:
        given["timeout"] = parse_seconds(given["timeout"])
    if given["log_level"].upper() not in LEVELS:
        raise unknown("log level", given["log_level"], LEVELS)
    return Options.from_plain(given)


def _counted(made: Session) -> str:
    words = status_counts(made.statuses)
    if made.mistakes:
        words.append(f"{len(made.mistakes)} mistake" + ("s" if len(made.mistakes) > 1 else "") + " in the config")
    return " · ".join(words) or "nothing to run"


def _saved(made: Session) -> str:
    return f" · saved {made.files['benchmark_file']}" if "benchmark_file" in made.files else ""


def _watch(level: str) -> ConfigWatch:
    """Print one line per config at INFO, only trouble at WARNING, and only mistakes from ERROR on."""
    from steelyard.dialects.param.watching import ConfigWatch

    shown = LOUDNESS[level.upper()]

    class Lines(ConfigWatch):
        """Reports on stderr."""

        done = total = 0

        def mistake(self, mistake: Mistake) -> None:
            if shown <= LOUDNESS["ERROR"]:
                tell(f"error: {mistake}")

        def warning(self, text: str) -> None:
            if shown <= LOUDNESS["WARNING"]:
                tell(f"warning: {text}")

        def begun(self, count: int) -> None:
            self.total = count

        def started(self, id: str) -> None:
            if shown <= LOUDNESS["DEBUG"]:
                tell(f"running {id}")

        def finished(self, line: Line) -> None:
            self.done += 1
            if shown <= LOUDNESS["INFO"] or (shown <= LOUDNESS["WARNING"] and line["steelyard"]["status"] not in ("ok", "skipped")):
                tell(f"{self._count()}{_summary(line)}")

        def said(self, text: str) -> None:
            if shown <= LOUDNESS["INFO"]:
                tell(text)

        def waiting(self, text: str) -> None:
            tell(text)

        def printed(self, text: str) -> None:
            if shown <= LOUDNESS["DEBUG"]:
                tell(f"  | {text}")

        def _count(self) -> str:
            return f"[{self.done}/{self.total}] " if self.total else ""

    return Lines()


def _summary(line: Line) -> str:
    from steelyard.dialects.param.lines import full_id

    ours = line["steelyard"]
    words = [full_id(line)]
    if ours["status"] != "ok":
        words += [ours["status"], str(ours.get("error") or ours.get("reason", ""))[:500]]
    words += [f"{name} {_time(figures)}" for name, figures in ours.get("statistics", {}).items()]
    words += [f"{name} not applicable" for name in ours.get("not_applicable", {})]
    return "  ".join(word for word in words if word)


def _time(figures: dict[str, Any]) -> str:
    from steelyard.model.units import plain, with_error

    if figures["low"] is None:
        return plain(figures["median"], "s")
    return with_error(figures["median"], figures["low"], figures["high"], "s")
