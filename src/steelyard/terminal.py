"""Output for all commands, those of dialects too: pure JSON on stdout, or a console that respects the reader's terminal."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST, NARROWEST = 100, 40
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
"""Click settings of every command: the help options and the width of help texts."""
STEERING = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that JSON does not escape and terminals obey: C1 control codes and those that change the direction of text."""


def emit_json(value: Any, indent: int | None = 2) -> None:
    """Print one JSON document on stdout, on one line without an indent; what JSON cannot hold, such as NaN, becomes null."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
    click.echo(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def plain(value: Any) -> Any:
    """Convert dataclasses, paths and tuples to types that JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def save(path: Path, content: str | bytes, *, folder: bool = False) -> None:
    """Write a file atomically; a link is followed, and a pipe or a device is simply written to. With `folder` its folder is created if
    missing.
    """
    import tempfile

    from steelyard.errors import UsageError

    data = content.encode() if isinstance(content, str) else content
    try:
        target = path.resolve()
        if folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name[:40]}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), 0o666 & ~umask())
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {str(path)!r}", why=why, do="name another place with -o FILE") from None


def hand_out(text: str, output: Path | None, what: str, then: str = "") -> None:
    """Write to a file and print a line that says `what` was saved there and what to do `then`, or write to stdout."""
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text)
    click.echo(f"{what} · saved {output}{f'    next: {then}' if then else ''}", err=True)


def umask() -> int:
    """The umask of this process."""
    held = os.umask(0o022)
    os.umask(held)
    return held


def tell(text: str) -> None:
    """Print a line to stderr without control characters from files, models or operators; columns stay as they are."""
    from steelyard.report.cells import visible

    click.echo(visible(text), err=True)


def put_line(text: str, indent: str = "") -> None:
    """Print a line to stdout without control characters from files; columns stay as they are."""
    from steelyard.report.cells import visible

    click.echo(f"{indent}{visible(text)}")


def say(text: object, *, aside: bool = False, indent: str = "") -> None:
    """Print text as one line, to stdout or, with `aside`, to stderr."""
    from steelyard.report.cells import clean

    click.echo(f"{indent}{clean(text)}", err=aside)


def warn(text: object) -> None:
    """Print `warning: …` to stderr."""
    say(f"warning: {text}", aside=True)


def width() -> int:
    """The width to draw in: the terminal's or COLUMNS, at most 100; a pipe gets 100."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def put(page: Text) -> None:
    """Print a page whose lines already fit the width, without rich's own wrapping, which took half of the time."""
    from rich.segment import Segments

    out = console()
    out.print(Segments(page.render(out, end="\n")), crop=False, end="")


def console(stderr: bool = False) -> Console:
    """A rich console for one stream; rich itself reads NO_COLOR, and CI does not count as a terminal."""
    from rich.console import Console

    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return Console(
        file=sys.stderr if stderr else sys.stdout, width=width(), highlight=False, markup=False, emoji=False, soft_wrap=False,
        force_terminal=False if in_ci else None,
    )  # fmt: skip


def heed_signals() -> None:
    """Make SIGTERM and SIGHUP end a command as Ctrl-C does, so that it can print what was saved."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
