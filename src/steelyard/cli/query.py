"""`steelyard query`: SQL queries over all saved runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from steelyard.cli.output import CONTEXT, emit_json, find_store, json_option, plain, say, store_option, warn, width
from steelyard.errors import PASS, UsageError

MOST_ROWS = 200
GAP, NARROWEST_CELL, LONGEST_CELL = 2, 10, 200


@click.command("query", context_settings=CONTEXT)
@click.argument("sql", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV to stdout.")
@json_option
@store_option
def command(sql: str | None, as_csv: bool, as_json: bool, store: Path | str | None) -> int:
    """Run one SELECT over all saved runs, with DuckDB.

    The tables are records, pairs and series; without SQL their columns are listed. Queries are read-only and can read no other files.
    Needs: pip install 'steelyard[query]'

    \b
    steelyard query "SELECT case_id, min(time) FROM records WHERE status = 'ok' GROUP BY 1"
    steelyard query "FROM series WHERE metric = 'time' ORDER BY created DESC LIMIT 100" --csv
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", do="choose one")
    if sql is None:
        return _list(as_json)
    from steelyard.store.sql import query

    answer = query(find_store(store), sql)
    for line in answer.unreadable:
        warn(f"not in the tables: {line}")
    if as_json:
        emit_json([dict(zip(_apart(answer.columns), row, strict=True)) for row in answer.rows])
    elif as_csv:
        from steelyard.report.export import table

        click.echo(table(answer.columns, plain(answer.rows)), nl=False)
    else:
        _draw(answer.columns, answer.rows)
    return PASS


def _list(as_json: bool) -> int:
    from steelyard.store.tables import TABLES

    if as_json:
        emit_json({name: list(columns) for name, columns in TABLES.items()})
        return PASS
    for name, columns in TABLES.items():
        click.echo(name)
        for column in columns:
            click.echo(f"  {column.name:<17} {column.type:<23} {column.holds}")
    return PASS


def _apart(names: Sequence[str]) -> list[str]:
    """Column names made unique: SQL allows duplicates, JSON does not."""
    made: list[str] = []
    for name in names:
        number = 2
        unique = name
        while unique in made:
            unique, number = f"{name}_{number}", number + 1
        made.append(unique)
    return made


def _draw(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from tabulate import tabulate  # type: ignore[import-untyped]

    shown = [[_cell(value) for value in row] for row in (columns, *rows[:MOST_ROWS])]
    room = _room([max(map(len, cells)) for cells in zip(*shown, strict=True)])
    cut = [[text if len(text) <= most else f"{text[: most - 1]}…" for text, most in zip(row, room, strict=True)] for row in shown]
    click.echo(tabulate(cut[1:], cut[0], tablefmt="simple", disable_numparse=True))
    left = len(rows) + 1 - len(shown)
    say(f"{len(rows)} row{'' if len(rows) == 1 else 's'}" + (f", {left} not shown: --csv or --json prints all" if left else ""), aside=True)


def _room(widths: Sequence[int]) -> list[int]:
    """A width for each column so that all fit the terminal: the widest are cut, down to a readable minimum."""
    room = list(widths)
    while sum(room) + GAP * (len(room) - 1) > width() and max(room) > NARROWEST_CELL:
        room[room.index(max(room))] -= 1
    return room


def _cell(value: object) -> str:
    from steelyard.report.cells import clean

    return clean(f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)[:LONGEST_CELL])
