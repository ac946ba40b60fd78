"""`steelyard as toy`: its own flags, its own file, and its exit codes: 0 where every row is ok, else 3."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from steelyard.dialects.commands import status_counts
from steelyard.engine import conduct
from steelyard.engine.run import NoWatch
from steelyard.errors import FAILED, PASS
from steelyard.store.runs import Store
from steelyard.terminal import CONTEXT, heed_signals, tell
from toy_dialect import config
from toy_dialect.rows import ToyRows


@click.command("toy", context_settings=CONTEXT)
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default="results.toy", show_default=True, help="Where the lines go.")
@click.option("--file", "files", multiple=True, help="Your own Python file with operations.")
@click.option("--repeats", type=click.IntRange(2), default=10, show_default=True, help="Timed calls, the cold one included.")
@click.option("--resume", is_flag=True, help="Keep the rows that the file has, and measure the others.")
def command(rows: Path, output: Path, files: tuple[str, ...], repeats: int, resume: bool) -> int:
    """Compare old and new, a line for each row."""
    experiment = config.read(rows, tuple(str(Path(file).resolve()) for file in files), repeats=repeats)
    ready, typed = conduct.from_experiment(experiment), click.get_current_context().find_root().obj or ()
    heed_signals()
    with closing(ToyRows(ready.rows, output, append=resume)) as sink:
        if not sink.complete():
            conduct.execute(ready, Store.find(), typed, lambda writer: NoWatch(), resume="" if resume else None, sink=sink)
        statuses = [str(line["status"]) for line in (*sink.held_rows.values(), *sink.written.values())]
    tell(f"{' · '.join(status_counts(statuses))} · saved {output}")
    return PASS if statuses and set(statuses) == {"ok"} else FAILED
