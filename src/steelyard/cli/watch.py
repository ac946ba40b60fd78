"""What commands that measure have in common: how they tell where they stand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from steelyard.cli.output import warn

if TYPE_CHECKING:
    from steelyard.engine.plan import Plan
    from steelyard.report.progress import Progress
    from steelyard.store.runs import RunWriter


def show_progress(ready: Plan, writer: RunWriter, words: Callable[[int], str]) -> Progress:
    """Say what is about to be measured, its number of cases in the words of the command, and start the line that counts them."""
    from steelyard.report.progress import Progress

    left = sum(job.case.id not in writer.done for job in ready.jobs)
    for warning in [*writer.warnings, *(f"rule {rule} fits no case" for rule in ready.idle)]:
        warn(warning)
    click.echo(f"{words(left)} · about {how_long(ready, left / max(1, len(ready.jobs)))} · run {writer.id}", err=True)
    return Progress(left, sys.stderr)


def how_long(ready: Plan, part: float = 1.0) -> str:
    """`5.0 s`, or `5.0 s, up to 14 s where a margin is hard to settle`."""
    from steelyard.model.units import duration

    about, most = duration(part * ready.estimate), duration(part * ready.longest)
    return about if about == most else f"{about}, up to {most} where a margin is hard to settle"


def case_count(count: int) -> str:
    """`1 case`, `2 cases`."""
    return f"{count} case" if count == 1 else f"{count} cases"
