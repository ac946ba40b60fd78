"""SQL over a store: the tables say what the runs say, stay up to date, and a question reaches nothing else."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.errors import UsageError
from steelyard.model.record import Figure
from steelyard.store import snapshot
from steelyard.store.runs import Header, Store
from steelyard.store.snapshot import Snapshot
from steelyard.store.sql import query
from steelyard.store.tables import TABLES
from tests.store.made import case, filled, pair, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def parts(store: Store) -> int:
    held = Snapshot(store)
    return len(json.loads((held.folder / "parts.json").read_text())["parts"])


def test_the_tables_say_what_the_runs_say(store: Store) -> None:
    machine = {"git": {"commit": "c0ffee", "dirty": True}}
    with store.create(Header(experiment="made", created="2026-01-02T03:04:05Z", machine=machine, machine_key="m1")) as writer:
        memory = Figure(7.0, "B", "lower")
        writer.append(record(1, metrics={"time": Figure(1e-3, "s", "lower", 0.9e-3, 1.1e-3, 5), "memory": memory}))
        writer.append(record(2, "failed", reason="it 'fell' over", metrics={}, started="2026-01-02T04:00:00+01:00"))
        writer.append_pair(pair(2))
        writer.seal()
    found = query(store, "SELECT * FROM records ORDER BY number")
    assert list(found.columns) == [column.name for column in TABLES["records"]]
    first, second = (dict(zip(found.columns, row, strict=True)) for row in found.rows)
    assert (first["case_id"], first["time"], first["low"], first["high"], first["n"]) == (case(1), 1e-3, 0.9e-3, 1.1e-3, 5)
    assert (first["commit"], first["dirty"], first["machine"], first["experiment"]) == ("c0ffee", True, "m1", "made")
    assert first["params"] == {"n": "1"} and first["metrics"] == {"time": 1e-3, "memory": 7.0} and first["workload"] == "op/a"
    assert first["created"] == datetime(2026, 1, 2, 3, 4, 5) and second["created"] == datetime(2026, 1, 2, 3, 0)
    assert (second["status"], second["reason"], second["time"], second["metrics"]) == ("failed", "it 'fell' over", None, {})
    assert query(store, "SELECT metric, value, unit FROM series ORDER BY 1").rows == [("memory", 7.0, "B"), ("time", 1e-3, "s")]
    assert query(store, "SELECT head, base, time_ratio, verdict FROM pairs").rows == [(case(2), case(1), 1.0, "unclear")]


def test_a_store_without_runs_has_empty_tables(store: Store) -> None:
    assert [query(store, f"SELECT count(*) FROM {table}").rows for table in TABLES] == [[(0,)]] * 3


def test_only_what_is_new_or_changed_is_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = snapshot.read_run
    monkeypatch.setattr(snapshot, "read_run", lambda folder: (read.append(folder.name), real(folder))[1])
    count = "SELECT count(*), count(DISTINCT run) FROM records"
    first, second = filled(store), filled(store, seal=False)
    assert query(store, count).rows == [(6, 2)] and len(read) == 2
    assert query(store, count).rows == [(6, 2)] and len(read) == 2
    with store.resume("f", second.id) or pytest.fail("nothing to resume") as writer:
        writer.append(record(9))
        writer.seal()
    assert query(store, count).rows == [(7, 2)] and read[2:] == [second.path.name]
    (first.path / "run.jsonl").unlink()
    first.path.rename(store.root / "away")
    assert query(store, count).rows == [(4, 1)] and len(read) == 3


def test_parts_stay_few_and_hold_every_record_once(store: Store) -> None:
    for made in range(1, 13):
        filled(store, count=made % 4 + 1)
        query(store, "SELECT 1")
    expected = sum(made % 4 + 1 for made in range(1, 13))
    assert query(store, "SELECT count(*), count(DISTINCT (run, number)) FROM records").rows == [(expected, expected)]
    assert parts(store) <= 3
    assert len(list(Snapshot(store).folder.glob("*.parquet"))) == 3 * parts(store)


def test_damaged_tables_are_made_again(store: Store) -> None:
    filled(store)
    ask = "SELECT count(*), max(time) FROM records"
    whole = query(store, ask).rows
    for file in (*Snapshot(store).folder.glob("records-*.parquet"), Snapshot(store).folder / "parts.json"):
        file.write_bytes(b"\0rubbish" * 10)
        assert query(store, ask).rows == whole


def test_a_run_that_cannot_be_read_is_named_and_the_others_answer(store: Store) -> None:
    filled(store)
    bad = store.folder / "20260102T030405-zzzz"
    bad.mkdir()
    (bad / "run.jsonl").write_text("nothing\n")
    found = query(store, "SELECT count(*) FROM records")
    assert found.rows == [(3,)] and "20260102T030405-zzzz" in found.unreadable[0]


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM read_text('{file}')", "SELECT * FROM '{file}'", "FROM read_csv('{file}')", "SELECT * FROM glob('{folder}/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'", "COPY (SELECT 1) TO '{part}'", "ATTACH '{folder}/a.db'", "INSTALL httpfs", "LOAD httpfs",
        "SET enable_external_access = true", "PRAGMA disable_checkpoint_on_shutdown", "DROP VIEW records", "CREATE TABLE t (a INT)",
        "SELECT 1; SELECT 2", "SELECT 1; COPY (SELECT 1) TO '{folder}/out.csv'", "EXPORT DATABASE '{folder}/out'",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')", "FROM read_parquet('https://example.org/a.parquet')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'", "FROM question", "SELECT * FROM duckdb_secrets()", "", "SELEC 1",
    ],
)  # fmt: skip
def test_a_question_reaches_nothing_but_the_tables(store: Store, tmp_path: Path, question: str) -> None:
    filled(store)
    before = query(store, "SELECT count(*) FROM records").rows
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    part = next(Snapshot(store).folder.glob("records-*.parquet"))
    with pytest.raises(UsageError):
        query(store, question.format(file=tmp_path / "secret.csv", folder=tmp_path, part=part))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "store"]
    assert query(store, "SELECT count(*) FROM records").rows == before == [(3,)]


def test_the_command_prints_a_table_csv_and_json(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    filled(store, count=2)
    place = ["--store", str(store.root)]
    assert main(["query", "SELECT number, time, time AS time, created, params FROM records ORDER BY 1", "--json", *place]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["number"], row["time"], row["time_2"], row["params"]) for row in rows] == [
        (1, 1e-3, 1e-3, {"n": "1"}),
        (2, 2e-3, 2e-3, {"n": "2"}),
    ]
    assert main(["query", "SELECT case_id, time, 0.5 AS half FROM records ORDER BY number", "--csv", *place]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["case_id,time,half", f"{case(1)},0.001,0.5"]
    assert main(["query", "SELECT *, repeat('x', 500) FROM records", *place]) == 0
    table = capsys.readouterr()
    assert "2 rows" in table.err and len(table.out.splitlines()) == 4
    assert main(["query", "SELECT case_id, case_id, reason, time FROM records", *place]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
    assert main(["query"]) == 0
    told = capsys.readouterr().out
    assert all(name in told and all(column.name in told for column in columns) for name, columns in TABLES.items())
    assert main(["query", "SELECT nothing FROM records", *place]) == 2
    assert "tables and columns: steelyard query" in capsys.readouterr().err


def test_without_duckdb_it_says_what_to_install(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", "SELECT 1", "--store", str(store.root)]) == 2
    assert "pip install 'steelyard[query]'" in capsys.readouterr().err
