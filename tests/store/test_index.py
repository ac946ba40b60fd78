"""The index may be old, damaged, foreign or gone; the answers must not change."""

from __future__ import annotations

import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from steelyard.model.record import Figure
from steelyard.store.index import VERSION, Index
from steelyard.store.runs import Header, Store
from tests.store.made import case, filled, python, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / ".steelyard")
    filled(made, 3, created="2026-01-01T00:00:00Z", id="aaaa")
    filled(made, 2, created="2026-01-02T00:00:00Z", id="bbbb")
    return made


def answers(store: Store) -> list[str]:
    with Index(store) as index:
        index.refresh()
        return [f"{entry.run}/{entry.number}" for entry in index.series(case(2))] + index.find("op/")


def in_memory(index: Index) -> bool:
    """Whether the store could not be written, so that the work will be done again next time."""
    assert index._base is not None
    return not index._base.execute("PRAGMA database_list").fetchone()[2]


EXPECTED = ["aaaa/2", "bbbb/2", case(1), case(2), case(3)]


def test_lookups_by_case(store: Store) -> None:
    with Index(store) as index:
        assert index.refresh() == 2
        entry = index.latest(case(2))
        assert entry is not None
        assert (entry.run, entry.number, entry.status) == ("bbbb", 2, "ok")
        assert (entry.time, entry.low, entry.high) == (2e-3, 2 * 0.9e-3, 2 * 1.1e-3)
        assert index.latest("op/b@torch/eager:eval") is None
        assert index.find("op/a[n=3") == [case(3)]
        assert index.find("op/%") == []
        assert not in_memory(index)
    assert answers(store) == EXPECTED


def test_only_changed_files_are_read_again(store: Store) -> None:
    with Index(store) as index:
        assert [index.refresh(), index.refresh()] == [2, 0]
        unsealed = filled(store, 1, seal=False, id="cccc")
        assert index.refresh() == 1
        with store.resume("f") or pytest.fail("nothing to resume") as writer:
            writer.append(record(9))
        assert [index.refresh(), index.refresh()] == [1, 0]
        assert index.latest(case(9)) is not None
        shutil.rmtree(unsealed.path)
        index.refresh()
        assert index.latest(case(9)) is None
    with Index(store) as index:
        assert index.refresh() == 0


def test_times_of_any_spelling_sort_by_moment(store: Store) -> None:
    with store.create(Header(id="zzzz")) as writer:
        writer.append(record(7, started="2026-01-01T12:00:00+09:00"))
        writer.append(record(7, started="2026-01-01T04:00:00Z"))
        writer.append(record(7, started="2026-01-01T02:00:00.5Z", metrics={"time": Figure(math.nan, "s")}))
    with Index(store) as index:
        index.refresh()
        assert [entry.number for entry in index.series(case(7))] == [3, 1, 2]
        assert index.series(case(7))[0].time is None


def test_a_run_that_cannot_be_read_is_left_out(store: Store) -> None:
    broken = store.folder / "20260103T000000-dddd"
    broken.mkdir()
    (broken / "run.jsonl").write_text("nonsense\n")
    (store.folder / "empty").mkdir()
    assert answers(store) == EXPECTED


@pytest.mark.parametrize("damage", ["garbage", "empty", "foreign", "newer", "cut", "scribbled"])
def test_a_damaged_or_foreign_index_is_rebuilt(store: Store, damage: str) -> None:
    path = store.root / "index.sqlite"
    assert answers(store) == EXPECTED
    data = path.read_bytes()
    if damage in ("foreign", "newer"):
        base = sqlite3.connect(path)
        base.executescript("DROP TABLE records" if damage == "foreign" else "SELECT 1")
        base.execute(f"PRAGMA user_version = {VERSION + 1}")
        base.close()
    else:
        path.write_bytes(
            {"garbage": b"not a database" * 99, "empty": b"", "cut": data[:4096], "scribbled": data[:4096] + b"\xee" * 9000}[damage]
        )
    assert answers(store) == EXPECTED
    with Index(store) as index:
        assert index.refresh() == 0
        assert not in_memory(index)


def test_damage_found_by_a_lookup_is_repaired(store: Store) -> None:
    with Index(store) as index:
        index.refresh()
        (store.root / "index.sqlite").write_bytes(b"not a database" * 999)
        assert [entry.run for entry in index.series(case(3))] == ["aaaa"]
        assert not in_memory(index)


def test_where_no_file_can_be_written_the_index_is_in_memory(store: Store) -> None:
    (store.root / "index.sqlite").mkdir()
    with Index(store) as index:
        assert index.refresh() == 2
        assert in_memory(index)
        assert [entry.run for entry in index.series(case(2))] == ["aaaa", "bbbb"]
    with Index(Store(store.root / "none")) as index:
        index.refresh()
        assert index.find("") == []


def test_many_refresh_at_once_while_one_writes(store: Store) -> None:
    read = """
import sys
from pathlib import Path
from steelyard.store.index import Index
from steelyard.store.runs import Store
for _ in range(20):
    with Index(Store(Path(sys.argv[1]))) as index:
        index.refresh()
        assert index._base.execute('PRAGMA database_list').fetchone()[2]
        assert len(index.series(sys.argv[2])) >= 2
print("done")
"""
    write = """
import sys
from pathlib import Path
from steelyard.store.runs import Store
from tests.store.made import filled
for _ in range(5):
    filled(Store(Path(sys.argv[1])), 3)
print("done")
"""
    processes = [python(code, store.root, case(2), wait=False) for code in (read, read, read, write)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["done"] * 4
    with Index(store) as index:
        index.refresh()
        assert len(index.series(case(2))) == 7


BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'f' folder, i number, 'r' run, 'c' || i case_id"


@pytest.mark.parametrize(
    "planted",
    [
        f"DROP TABLE records; CREATE VIEW records AS {BOMB}, '' status, i time, i low, i high, '' created, i moment FROM n",
        "DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i folder FROM n",
        "CREATE TRIGGER t AFTER DELETE ON records BEGIN INSERT INTO records (folder, number) VALUES (random(), 1); END",
        "CREATE TABLE more (x)",
        "UPDATE records SET time = 'soon'",
        "UPDATE records SET run = x'00'",
        "UPDATE records SET folder = '../../' || folder",
        "UPDATE records SET number = 'n' || number",
    ],
)
def test_an_index_that_is_not_exactly_ours_is_made_anew(store: Store, planted: str) -> None:
    run = filled(store)
    with Index(store) as index:
        index.refresh()
        before = index.every_series()
    with sqlite3.connect(store.root / "index.sqlite") as base:
        base.executescript(planted)
    base.close()
    with Index(store) as index:
        index.refresh()
        assert index.latest(case(1)) == before[case(1)][-1] and index.latest(case(1)).run == run.id  # type: ignore[union-attr]
        assert index.every_series() == before and not in_memory(index)


def test_an_index_that_leads_elsewhere_is_replaced(store: Store, tmp_path: Path) -> None:
    filled(store)
    (tmp_path / "precious").write_bytes(b"not yours")
    (store.root / "index.sqlite").symlink_to(tmp_path / "precious")
    with Index(store) as index:
        index.refresh()
        assert index.latest(case(1))
    assert (tmp_path / "precious").read_bytes() == b"not yours" and not (store.root / "index.sqlite").is_symlink()
