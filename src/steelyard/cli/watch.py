"""Progress output shared by commands that measure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from steelyard.cli.output import warn
from steelyard.cli.streams import complain
from steelyard.errors import HostsLost, StoreError
from steelyard.terminal import heed_signals

if TYPE_CHECKING:
    from steelyard.engine.plan import Plan
    from steelyard.report.progress import Progress
    from steelyard.store.runs import RunWriter

Done = TypeVar("Done")


class Watched:
    """Shows a run while it is measured: a progress line, and a message if it ends early."""

    def __init__(self, ready: Plan, words: Callable[[int], str]) -> None:
        self.ready, self.words = ready, words
        self.writer: RunWriter | None = None
        self.progress: Progress | None = None

    def __call__(self, writer: RunWriter) -> Progress:
        """Print what is about to be measured, and return the progress line."""
        from steelyard.report.progress import Progress

        left = sum(job.case.id not in writer.done for job in self.ready.jobs)
        for warning in [*writer.warnings, *(f"rule {rule} fits no case" for rule in self.ready.idle)]:
            warn(warning)
        about = how_long(self.ready, left / max(1, len(self.ready.jobs)), writer.header.machine_key)
        click.echo(f"{self.words(left)} · about {about} · run {writer.id}", err=True)
        self.writer, self.progress = writer, Progress(left, sys.stderr)
        return self.progress

    def close(self) -> None:
        """Clear the progress line."""
        if self.progress:
            self.progress.close()

    def through(self, work: Callable[[], Done], kept: Callable[[str], str]) -> Done | None:
        """Call `work` and return its result; None if it was interrupted or stopped by a full disk or lost hosts, after printing what was
        saved."""
        heed_signals()
        try:
            return work()
        except KeyboardInterrupt:
            word = "interrupted"
        except (StoreError, HostsLost) as error:
            if not self.writer or not self.writer.done:
                raise
            complain(str(error))
            word = "stopped"
        finally:
            self.close()
        if told := kept(word):
            click.echo(told, err=True)
        return None


def typed() -> tuple[str, ...]:
    """The command line as it was typed, quoted for a shell."""
    found: tuple[str, ...] = click.get_current_context().find_object(tuple) or ()
    return found


def how_long(ready: Plan, part: float = 1.0, key: str = "") -> str:
    """The estimated time in words: `5.0 s`, or `5.0 s, up to 14 s where a margin is hard to settle`."""
    from steelyard.engine.waits import estimate
    from steelyard.model.units import duration

    found = estimate(ready, key)
    about, most = duration(part * found.about), duration(part * found.longest)
    return about if about == most else f"{about}, up to {most} where a margin is hard to settle"
