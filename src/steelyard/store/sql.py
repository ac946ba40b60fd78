"""SQL queries over the runs of a store, by DuckDB; they read only the tables. A reader can merge parts while another is about to open them,
so a query is repeated if a file is missing, and then with new tables, since a file may be damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steelyard.errors import StoreError, UsageError
from steelyard.store import tables
from steelyard.store.runs import Store
from steelyard.store.snapshot import Snapshot

CONFIG = dict.fromkeys(
    ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions", "python_enable_replacements"), "false"
)
"""DuckDB's settings: load no extensions, and take no variable of this program for a table."""


class DamagedTables(Exception):
    """A cache file is missing or damaged; the query is not at fault."""


@dataclass(frozen=True)
class SqlAnswer:
    """The result of a query: names of columns, rows, and which runs could not be read."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    unreadable: tuple[str, ...] = ()


def query(store: Store, question: str) -> SqlAnswer:
    """The answer to one SELECT over the tables of `store`, which are brought up to date first."""
    duckdb = _engine()
    _check(duckdb, question)
    for tried in range(3):
        snapshot = _snapshot(duckdb, store)
        try:
            with _reader(duckdb, snapshot) as base:
                found = base.execute(question)
                rows = [tuple(map(_number, row)) for row in found.fetchall()]
                return SqlAnswer(tuple(column[0] for column in found.description), rows, snapshot.unreadable)
        except (DamagedTables, duckdb.IOException, duckdb.SerializationException) as error:
            if tried == 2:
                raise StoreError("the tables cannot be read", why=_said(error), do=f"delete {snapshot.folder}") from None
            if tried == 1:
                snapshot.forget()
        except duckdb.PermissionException as error:
            why = f"a query can read {', '.join(tables.TABLES)}, not files, folders or addresses: {_said(error)}"
            raise UsageError("the query reads something other than the tables", why=why) from None
        except duckdb.Error as error:
            raise _mistake(error) from None
    raise AssertionError("the last try answers or raises")


def _number(value: Any) -> Any:
    """A value with SQL's decimals turned into floats, for JSON and CSV."""
    return float(value) if isinstance(value, Decimal) else value


def _engine() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UsageError("SQL queries need DuckDB", why="it is not installed", do="pip install 'steelyard[query]'") from None
    return duckdb


def _check(duckdb: Any, question: str) -> None:
    """Refuse anything but one SELECT, before any run is read; for DuckDB, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE and SHOW are SELECTs."""
    try:
        with duckdb.connect(":memory:", config=CONFIG) as base:
            found = base.extract_statements(question)
    except duckdb.Error as error:
        raise _mistake(error) from None
    if len(found) != 1 or found[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise UsageError("a query is one SELECT", why="saved results are only read, never changed", do="see steelyard query --help")


def _snapshot(duckdb: Any, store: Store) -> Snapshot:
    """The tables, brought up to date; damaged ones are made again."""
    snapshot = Snapshot(store)
    for last in (False, True):
        try:
            with duckdb.connect(":memory:", config=CONFIG) as base:
                base.execute(f"SET temp_directory='{str(snapshot.folder).replace(chr(39), chr(39) * 2)}/spill'")
                snapshot.refresh(base)
                break
        except duckdb.Error as error:
            if last:
                raise StoreError("the tables cannot be made", why=_said(error), do=f"delete {snapshot.folder}") from None
            snapshot.forget()
    return snapshot


@contextlib.contextmanager
def _reader(duckdb: Any, snapshot: Snapshot) -> Iterator[Any]:
    """A connection that can read only the tables: it cannot open other files, load code or change these settings."""
    with duckdb.connect(":memory:", config=CONFIG) as base:
        try:
            for table in tables.TABLES:
                base.execute(f"CREATE VIEW {table} AS {snapshot.selection(table)}")
        except duckdb.Error as error:
            raise DamagedTables(str(error)) from None
        base.execute("SET allowed_paths = $1", [[file for table in tables.TABLES for file in snapshot.files(table)]])
        base.execute("SET temp_directory = ''")
        base.execute("SET enable_external_access = false")
        base.execute("SET lock_configuration = true")
        yield base


def _mistake(error: Exception) -> UsageError:
    said = str(error)
    zone = "pytz" in said
    why = "a time with a time zone cannot be shown: write now()::TIMESTAMP or current_date" if zone else said.strip()
    return UsageError("the query failed", why=why.replace("\n", "\n  "), do="tables and columns: steelyard query")


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
