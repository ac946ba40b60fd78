"""What Steelyard's own commands share: options, and the terminal they print with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.errors import UsageError
from steelyard.terminal import CONTEXT, console, emit_json, plain, put, save, say, tell, warn, width

if TYPE_CHECKING:
    from steelyard.store.runs import Store

__all__ = [
    "CONTEXT", "console", "emit_json", "find_store", "json_option", "plain", "put", "refuse_empty", "save", "say", "store_option", "tell",
    "trust_option", "warn", "width",
]  # fmt: skip

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")


class StorePlace(click.Path):
    """Parameter type: a folder, or the address of a shared store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


store_option = click.option(
    "--store", metavar="DIR", type=StorePlace(file_okay=False, path_type=Path),
    help="Folder of saved runs, or an address such as s3://bucket/runs. Default: the nearest one.",
)  # fmt: skip

trust_option = click.option(
    "--trust",
    metavar="RUN",
    multiple=True,
    help="Allow executing the commands and code of this run although it was made elsewhere; may be repeated.",
)


def refuse_empty(options: Mapping[str, Any], *names: str) -> None:
    """Reject an option given with an empty value instead of treating it as absent."""
    for name in names:
        if options[name] is not None and not options[name].strip():
            raise UsageError(f"--{name} is empty", why="an unset shell variable may be the cause", do="name one, or leave it out")


def find_store(folder: Path | str | None) -> Store:
    """Open the store that --store names by folder or address, else the nearest folder of runs."""
    from steelyard.store.runs import Store

    return Store.find(explicit=str(folder) if folder else None)
