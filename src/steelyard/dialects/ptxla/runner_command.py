"""`steelyard as ptxla runner`: PyTorch/XLA's experiment runner, with its flags, log lines and rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from steelyard.dialects.commands import LOUDNESS, option, status_counts
from steelyard.errors import INTERRUPTED
from steelyard.terminal import CONTEXT, heed_signals, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steelyard.dialects.ptxla.flags import RunnerOptions
    from steelyard.dialects.ptxla.rows import Row
    from steelyard.dialects.ptxla.runner import Answering, MatrixRun, RunnerWatch


def command() -> click.Command:
    """The flags of the original's experiment_runner, from the table that also says what they mean."""
    from steelyard.dialects.ptxla.flags import FLAGS, RunnerOptions

    return click.Command(
        "runner", callback=run, params=[option(flag, RunnerOptions()) for flag in FLAGS], context_settings=CONTEXT,
        help="""Run every combination of the axes on every model, each in a process of its own, and append a JSON row for each.

        An axis that is not given has all its values; 'None' is a value of its own. What failed has a row with the reason.

        \b
        steelyard as ptxla runner --suite-name=dummy --accelerator=cpu --xla=None --repeat=5 --verify
        steelyard as ptxla runner --suite-name=steelyard --size=small --accelerator=cpu --test=eval --dry-run
        """,
    )  # fmt: skip


def run(**given: Any) -> int:
    """Plan and run; a row that was written stays whatever happens later."""
    from steelyard.dialects.ptxla import flags, runner

    options = flags.settle(flags.RunnerOptions.from_plain(given))
    made = runner.begin(options, _talking(options), _watch(options))
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


def _talking(options: RunnerOptions) -> Any:
    """How a config gets its process: in the interpreter that has its stack, with the locks of its devices."""

    def talking(
        experiment: Mapping[str, Any], variables: Mapping[str, str], threads: int, timeout: float
    ) -> AbstractContextManager[Answering]:
        from dataclasses import replace

        from steelyard.engine import converse, envs

        backend = "torchax" if experiment["torch_xla2"] else "torch" if experiment["xla"] is None else "torch_xla"
        ours = envs.variables(backend, experiment["accelerator"], threads) | dict(variables)
        place = replace(_place(backend), threads=threads, flags=tuple(ours.items()))
        devices = ["cuda0"] if experiment["accelerator"] == "cuda" else []
        return converse.talking(devices, tell, timeout, place)

    return talking


def _place(backend: str) -> Any:
    """The environment of a backend that has one of its own, ours for the rest."""
    import importlib.util

    from steelyard import registry
    from steelyard.engine import envs
    from steelyard.engine.place import Place
    from steelyard.errors import Unsupported

    if backend == "torch":
        return Place()
    found = envs.place_for(backend, Place())
    if found == Place() and importlib.util.find_spec(backend) is None:
        stack = registry.about_backend(backend).stack
        raise Unsupported(f"{backend} is not installed here, and no environment has it", do=f"steelyard env create {stack}")
    return found


def _watch(options: RunnerOptions) -> RunnerWatch:
    """Tells as much as the log level allows."""
    from steelyard.dialects.ptxla import runner

    shown = LOUDNESS[options.log_level.upper()]

    class Lines(runner.RunnerWatch):
        """Tells on stderr."""

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


def _stack(row: Row) -> str:
    """The name in reports, or the axes themselves where there is none."""
    point = row.experiment
    return f"torch_xla2={point['torch_xla2']}" if point.get("torch_xla2") else row.backend or f"{point['xla']}+{point['dynamo']}"


def _summary(row: Row) -> str:
    """One line for a row: the model and its stack, the first and the median of the later times, and whether the answer was right."""
    import statistics

    from steelyard.model.units import plain

    point = row.experiment
    words = [row.name, str(point["accelerator"]), str(point["test"]), _stack(row)]
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
