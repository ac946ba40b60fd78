"""What our own commands have in common: their shared options, and the terminal that they print with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.terminal import CONTEXT, console, emit_json, plain, put, save, say, tell, warn, width

if TYPE_CHECKING:
    from steelyard.store.runs import Store

__all__ = [
    "CONTEXT", "console", "emit_json", "find_store", "json_option", "plain", "put", "save", "say", "store_option", "tell", "trust_option",
    "warn", "width",
]  # fmt: skip

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
store_option = click.option(
    "--store", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Folder of saved runs; by default the nearest one."
)

trust_option = click.option(
    "--trust", metavar="RUN", multiple=True, help="Execute what this run says although you did not make it here; may be repeated."
)


def find_store(folder: Path | None) -> Store:
    """The runs in the folder that --store names, else in the nearest one."""
    from steelyard.store.runs import Store

    return Store.find(explicit=str(folder) if folder else None)
