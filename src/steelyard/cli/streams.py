"""Makes commands survive closed streams, full disks and broken pipes on stdout and stderr."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

import click

from steelyard.errors import UsageError

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LONGEST = 1000


class ReaderGone(Exception):
    """The reader of our output has closed the pipe, as `head` does; no message can be shown."""


class Output:
    """Stdout whose write errors are raised as our own exceptions, so that no library handles them as something else."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.problem: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write, or raise our error."""
        try:
            self.stream.write(text)
        except OSError as error:
            self.give_up(error)
        self.complain()
        return len(text)

    def flush(self) -> None:
        """Flush, or raise our error."""
        try:
            self.stream.flush()
        except OSError as error:
            self.give_up(error)
        self.complain()

    def give_up(self, error: OSError) -> None:
        """Discard what is still in the buffer, so that the interpreter does not fail on it again at exit."""
        silence(self.stream)
        saved = "a run that was measured is saved: steelyard show latest"
        told = UsageError("cannot write to standard output", why=error.strerror or str(error), do=saved)
        self.problem = ReaderGone() if isinstance(error, BrokenPipeError) else told

    def complain(self) -> None:
        """Raise the first failure again at every use, because a library may swallow it."""
        if self.problem:
            raise self.problem


class Aside(Output):
    """Stderr that drops messages instead of failing the run."""

    def complain(self) -> None:
        """Flush, and ignore errors: there is no other place to report them."""


def silence(stream: TextIO) -> None:
    """Redirect a file descriptor to the null device."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run a command with protected streams; closed ones are opened on the null device, so that no file we open gets their descriptor."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    out = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    err = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (out, err):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with contextlib.redirect_stdout(cast(TextIO, Output(out))), contextlib.redirect_stderr(cast(TextIO, Aside(err))):
        yield


def complain(text: str) -> None:
    """Print `error: …` to stderr with further lines indented, the label red on a terminal unless NO_COLOR is set."""
    first, *rest = (line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in CONTROL.sub("\ufffd", text).split("\n"))
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    label = "error:" if plain else click.style("error:", fg="red", bold=True)
    click.echo("\n".join([f"{label} {first}", *(line if line.startswith("  ") else f"  {line}" for line in rest)]), err=True)
