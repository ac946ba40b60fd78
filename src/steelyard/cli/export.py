"""`steelyard export`: a saved run in another tool's format."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from steelyard.cli.output import CONTEXT, store_option
from steelyard.errors import PASS, unknown
from steelyard.terminal import hand_out

OTHERS = {"hyperfine": "steelyard.analyze.foreign.hyperfine"}
"""Tools that are not dialects: only their results are read and written."""


@click.command("export", context_settings=CONTEXT)
@click.argument("ref", default="latest")
@click.option("--to", "form", required=True, metavar="TOOL", help="The format: hyperfine, or a name from 'steelyard list dialects'.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here instead of to stdout.")
@store_option
def command(ref: str, form: str, output: Path | None, store: Path | str | None) -> int:
    """Write a saved run as the results file of another tool.

    REF is latest, latest~3, a run id such as k3f9, or a path.

    \b
    steelyard export latest --to param -o results.json
    steelyard export latest --to hyperfine -o sleep.json
    """
    from steelyard import registry
    from steelyard.store import refs
    from steelyard.store.runs import Store

    writers = {**OTHERS, **{dialect.name: dialect.export for dialect in registry.dialects() if dialect.export}}
    if form not in writers:
        raise unknown("export format", form, writers, listing="steelyard list dialects")
    run = refs.resolve(Store.find(explicit=str(store) if store else None), ref).run
    text: str = importlib.import_module(writers[form]).text(run)
    hand_out(text, output, f"run {run.id}")
    return PASS
