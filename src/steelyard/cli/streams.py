"""Standard streams as callers really leave them: closed, full, or read by someone who has gone."""

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
    """Whoever read our output has left, as `head` does; there is nobody to tell."""


class Output:
    """Stdout: what cannot be written is an error of its own kind, which no library takes for something else."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.problem: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write, or say why not."""
        try:
            self.stream.write(text)
        except OSError as error:
            self.give_up(error)
        self.complain()
        return len(text)

    def flush(self) -> None:
        """The same for what was kept back."""
        try:
            self.stream.flush()
        except OSError as error:
            self.give_up(error)
        self.complain()

    def give_up(self, error: OSError) -> None:
        """What is still in the buffer goes nowhere, so that the interpreter does not fail over it once more when it ends."""
        silence(self.stream)
        saved = "a run that was measured is saved: steelyard show latest"
        told = UsageError("cannot write to standard output", why=error.strerror or str(error), do=saved)
        self.problem = ReaderGone() if isinstance(error, BrokenPipeError) else told

    def complain(self) -> None:
        """Said at every use: a library that only tries the stream may keep the first failure to itself."""
        if self.problem:
            raise self.problem


class Aside(Output):
    """Stderr: words are lost rather than the run."""

    def complain(self) -> None:
        """Nobody is told, since nobody listens."""


def silence(stream: TextIO) -> None:
    """Lead a stream into nothing from here on."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run a command with streams that cannot break it; closed ones lead nowhere, so that no file of ours takes their place."""
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
    """`error: …` with its further lines indented, red where colour is wanted."""
    first, *rest = (line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in CONTROL.sub("\ufffd", text).split("\n"))
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    label = "error:" if plain else click.style("error:", fg="red", bold=True)
    click.echo("\n".join([f"{label} {first}", *(line if line.startswith("  ") else f"  {line}" for line in rest)]), err=True)
