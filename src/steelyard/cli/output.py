"""What our own commands have in common: their shared options, and the terminal that they print with."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.terminal import CONTEXT, console, emit_json, plain, put, save, tell, warn, width

__all__ = [
    "CONTEXT", "console", "emit_json", "json_option", "plain", "put", "save", "store_option", "tell", "trust_option", "warn", "width",
]  # fmt: skip

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
store_option = click.option(
    "--store", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Folder of saved runs; by default the nearest one."
)

trust_option = click.option(
    "--trust", metavar="RUN", multiple=True, help="Execute what this run says although you did not make it here; may be repeated."
)
