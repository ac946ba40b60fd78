"""How long questions in SQL take: from sorted tables of millions of records, and from a folder of runs that was never read before.

    python -m benchmarks.sql --records 10000000

The tables have the columns, order and compression that `steelyard query` makes, and values with noise, which do not compress away. They are
made in DuckDB; the folder's runs are written and read by the store itself.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steelyard.model.case import Case
from steelyard.model.record import Figure, Record
from steelyard.store import sql, tables
from steelyard.store.index import Index
from steelyard.store.runs import Header, Store
from steelyard.store.snapshot import Snapshot, SnapshotPart

SUITE, NIGHTS = 1000, 100


def main() -> None:
    """Print every figure, one a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--series", type=int, default=5_000, help="cases among them")
    parser.add_argument("--runs", type=int, default=100, help="runs in the folder")
    parser.add_argument("--cases", type=int, default=1_000, help="records of each run")
    parser.add_argument("--asked", type=int, default=200, help="how often the short question is asked")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["STEELYARD_CACHE"] = scratch
        large(Path(scratch), options.records, options.series, options.asked)
        folder(Path(scratch), options.runs, options.cases)


def large(scratch: Path, records: int, series: int, asked: int) -> None:
    """Questions to one sorted part with all records."""
    duckdb = sql._engine()
    snapshot = Snapshot(Store(scratch / "large"))
    snapshot.folder.mkdir(parents=True)
    part = SnapshotPart("0" * 16, records, {})
    with duckdb.connect(config=sql.CONFIG) as base:
        base.execute(f"SET temp_directory='{scratch}/spill'")
        began = time.perf_counter()
        for table in tables.TABLES:
            snapshot._write(base, table, part, made(table, records, series))
        print(f"made {records:,} records in {series:,} series in {time.perf_counter() - began:.1f} s")
    snapshot.parts = (part,)
    for table in tables.TABLES:
        print(f"{table}: {sum(Path(file).stat().st_size for file in snapshot.files(table)) / 1e6:.0f} MB")
    draw = random.Random(7)
    with sql._reader(duckdb, snapshot) as base:
        last = """SELECT created, value, low, high FROM series WHERE case_id = $1 AND metric = 'time' AND machine = 'm0'
            ORDER BY created DESC LIMIT 100"""
        told(
            "last 100 points of a series", [timed(base, last, [f"op/a[n={draw.randrange(series)}]@torch/eager:eval"]) for _ in range(asked)]
        )
        suite = f"""SELECT case_id, created, value FROM series WHERE metric = 'time' AND machine = 'm0'
            AND CAST(regexp_extract(case_id, 'n=(\\d+)', 1) AS INTEGER) < {SUITE}
            QUALIFY row_number() OVER (PARTITION BY case_id ORDER BY created DESC) <= {NIGHTS}"""
        told(f"a suite of {SUITE} cases over {NIGHTS} nights", [timed(base, suite, []) for _ in range(5)])


def made(table: str, records: int, series: int) -> str:
    """SQL for the rows of a table, with noise in every figure."""
    case = f"'op/a[n=' || (i % {series}) || ']@torch/eager:eval'"
    value = "0.001 * (1 + 0.05 * random())"
    given = {
        "case_id": case, "head": case, "base": case, "metric": "'time'", "run": f"'r' || (i // {series})",
        "folder": f"'f' || (i // {series})",
        "created": f"TIMESTAMP '2020-01-01' + INTERVAL 1 HOUR * (i // {series})", "machine": "'m0'", "number": f"i % {series}",
        "status": "'ok'", "time": value, "value": value, "low": value, "high": value, "n": "100", "unit": "'s'", "better": "'lower'",
        "params": f"MAP {{'n': CAST(i % {series} AS VARCHAR)}}", "metrics": f"MAP {{'time': {value}}}",
    }  # fmt: skip
    columns = ", ".join(f"CAST({given.get(column.name, 'NULL')} AS {column.type}) AS {column.name}" for column in tables.TABLES[table])
    return f"SELECT {columns} FROM range({records if table != 'pairs' else 0}) t(i)"


def folder(scratch: Path, runs: int, cases: int) -> None:
    """The first question to a folder of runs, the next ones, and the same history by the store's own index."""
    store = Store(scratch / "folder")
    names = [Case("op/a", (("n", number),)) for number in range(cases)]
    for night in range(runs):
        with store.create(Header(experiment="nightly", created=f"2026-{1 + night // 28 % 12:02}-{1 + night % 28:02}T03:00:00Z")) as writer:
            for case in names:
                value = 0.001 * (1 + 0.05 * random.random())
                writer.append(Record(case.id, case.plain(), "ok", metrics={"time": Figure(value, "s", "lower", value, value, 100)}))
            writer.seal()
    ask = f"SELECT created, value FROM series WHERE case_id = '{names[0].id}' AND metric = 'time' ORDER BY created DESC LIMIT 100"
    print(f"folder of {runs} runs with {cases} records each")
    began = time.perf_counter()
    sql.query(store, ask)
    first = time.perf_counter() - began
    print(f"first question: {first:.1f} s, {runs * cases / first:,.0f} records/s")
    told("next questions, runs looked at each time", [spent(lambda: sql.query(store, ask)) for _ in range(20)])
    with Index(store) as index:
        print(f"index made: {spent(index.refresh):.1f} s")
        told("history of a case by the index", [spent(lambda: (index.refresh(), index.series(names[0].id))) for _ in range(20)])


def timed(base: Any, question: str, values: list[str]) -> float:
    return spent(lambda: base.execute(question, values).fetchall())


def spent(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def told(what: str, times: list[float]) -> None:
    """The median and the 99th percentile, in milliseconds."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    print(f"{what}: p50 {1e3 * statistics.median(times):.1f} ms, p99 {1e3 * p99:.1f} ms ({len(times)} times)")


if __name__ == "__main__":
    main()
