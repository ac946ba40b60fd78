"""`steelyard as ptxla runner`: PyTorch/XLA's experiment runner, with its flags, log lines and rows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from steelyard.dialects.commands import LOUDNESS, option, status_counts
from steelyard.errors import INTERRUPTED
from steelyard.terminal import CONTEXT, heed_signals, tell

if TYPE_CHECKING:
    from steelyard.dialects.ptxla.flags import RunnerOptions
    from steelyard.dialects.ptxla.rows import Row
    from steelyard.dialects.ptxla.runner import MatrixRun
    from steelyard.dialects.ptxla.sink import RunnerWatch


def command() -> click.Command:
    """Return the command with the flags of the original's experiment_runner."""
    from steelyard.dialects.ptxla.flags import FLAGS, RunnerOptions

    return click.Command(
        "runner", callback=run, params=[option(flag, RunnerOptions()) for flag in FLAGS], context_settings=CONTEXT,
        help="""Run every combination of the axes on every model, each in its own process, and append a JSON row for each.

        An axis that is not given has all its values; 'None' is one of them. A failed config has a row with the reason.

        \b
        steelyard as ptxla runner --suite-name=dummy --accelerator=cpu --xla=None --repeat=5 --verify
        steelyard as ptxla runner --suite-name=steelyard --size=small --accelerator=cpu --test=eval --dry-run
        """,
    )  # fmt: skip


def run(**given: Any) -> int:
    """Plan and run; rows written so far are kept if something fails later."""
    from steelyard.dialects.ptxla import flags, runner
    from steelyard.store.runs import Store

    options = flags.settle(flags.RunnerOptions.from_plain(given))
    made = runner.begin(options, _watch(options), Store.find(), sys.argv)
    heed_signals()
    try:
        code = made.run()
    except KeyboardInterrupt:
        tell(f"interrupted: {_counted(made)}")
        return INTERRUPTED
    if not options.dry_run and LOUDNESS[options.log_level.upper()] <= LOUDNESS["INFO"]:
        tell(f"{_counted(made)} · saved {made.file}")
    return code


def _counted(made: MatrixRun) -> str:
    return " · ".join(status_counts(made.statuses)) or "nothing was run"


def _watch(options: RunnerOptions) -> RunnerWatch:
    """Return a watch that reports as much as the log level allows."""
    from steelyard.dialects.ptxla import sink

    shown = LOUDNESS[options.log_level.upper()]

    class Lines(sink.RunnerWatch):
        """Reports on stderr."""

        def say(self, level: str, text: str) -> None:
            if LOUDNESS[level.upper()] >= shown:
                tell(text if level in ("debug", "info") else f"{level}: {text}")

        def printed(self, text: str) -> None:
            for line in text.splitlines():
                tell(line)

        def finished(self, row: Row, done: int, total: int) -> None:
            bad = "error" in row.metrics
            if options.progress_bar or LOUDNESS["WARNING" if bad else "INFO"] >= shown:
                tell(f"[{done}/{total}] {_summary(row)}")

    return Lines()


def _summary(row: Row) -> str:
    """Return one line for a row: the model and its stack, the first and the median of the later times, and whether the answer was right."""
    import statistics

    from steelyard.dialects.ptxla.sink import stack_name
    from steelyard.model.units import plain

    point = row.experiment
    words = [row.name, str(point["accelerator"]), str(point["test"]), stack_name(point)]
    if "error" in row.metrics:
        return "  ".join([*words, str(row.metrics["error"])[:500]])
    times = row.metrics.get("total_time") or []
    if times:
        words.append(f"first {plain(times[0], 's')}")
    if times[1:]:
        words.append(f"then {plain(statistics.median(times[1:]), 's')}")
    if row.verification_code != "VERIFIER_SKIPPED":
        words.append(str(row.verification_code))
    return "  ".join(words)
