"""`steelyard sync`: sends to a shared store the runs that could not be sent when they were measured."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, say, store_option
from steelyard.errors import PASS, UsageError


@click.command("sync", context_settings=CONTEXT)
@json_option
@store_option
def command(store: Path | str | None, as_json: bool) -> int:
    """Send the runs that are waiting here to the shared store, and list those sent.

    The store is an address given with --store or in STEELYARD_STORE. Runs are sent when they end; they wait here only if the store could
    not be reached.

    \b
    steelyard sync --store s3://bucket/prefix
    """
    from steelyard.store.shared import SharedStore

    place = find_store(store)
    if not isinstance(place, SharedStore):
        raise UsageError(f"{place.root} is a folder, not a shared store", do="name the address of one: --store s3://bucket/prefix")
    sent = place.send()
    if as_json:
        emit_json({"sent": sent, "store": place.url})
    else:
        say(f"sent {', '.join(sent)} to {place.url}" if sent else f"nothing waits to be sent to {place.url}")
    return PASS
