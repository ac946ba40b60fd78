"""A reference means one run, several, all of a commit, or a file; a mistake is told from each."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.analyze import sides
from steelyard.errors import StoreError, UsageError
from steelyard.store.runs import Header, Store
from tests.analyze.foreign_samples import pyperf_file
from tests.analyze.made import case, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Five runs an hour apart, of three commits; the fourth cannot be read."""
    made = Store(tmp_path / "store")
    for hour, (id, commit) in enumerate([("aaa1", "c0ffee11"), ("aaa2", "c0ffee11"), ("bbb1", "c0ffee22"), ("bad1", "dead"), ("ccc1", "")]):
        machine = {"git": {"commit": commit * 5, "dirty": False}} if commit else {}
        with made.create(Header(id=id, created=f"2026-01-02T{hour:02d}:00:00Z", machine=machine)) as writer:
            writer.append(record(case(1)))
            writer.seal()
        if id == "bad1":
            (writer.path / "run.jsonl").write_text("nonsense\n")
    return made


@pytest.mark.parametrize(
    ("ref", "ids"),
    [
        ("aaa1", ["aaa1"]),
        ("latest", ["ccc1"]),
        ("bbb", ["bbb1"]),
        ("ccc1,aaa1,aaa1", ["aaa1", "ccc1"]),
        ("latest~2..latest", ["aaa2", "bbb1", "ccc1"]),
        ("bbb1..aaa1", ["aaa1", "aaa2", "bbb1"]),
        ("c0ffee11", ["aaa1", "aaa2"]),
        ("c0ffee22", ["bbb1"]),
        ("aaa1..aaa2,latest", ["aaa1", "aaa2", "ccc1"]),
    ],
)
def test_references(store: Store, ref: str, ids: list[str]) -> None:
    assert [run.id for run in sides.find(store, ref).runs] == ids


def test_the_name_says_what_was_found(store: Store) -> None:
    assert [sides.find(store, ref).name for ref in ("aaa1", "latest", "c0ffee11")] == ["aaa1", "latest (ccc1)", "c0ffee11 (2 runs)"]


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("c0ffee", "ambiguous"),
        ("0123abcd", "no run named"),
        ("aaa1,,ccc1", "not a reference"),
        ("nope..latest", "no run named"),
        ("", "not a reference"),
    ],
)
def test_mistakes(store: Store, ref: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sides.find(store, ref)


def test_a_path_may_hold_dots_and_commas(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = pyperf_file(tmp_path / "a..b,c.json", {"x": [[1e-3], [1e-3]]})
    found = sides.find(store, str(file))
    assert found.name == "a..b,c.json" and [run.id for run in found.runs] == ["a..b,c.json#1", "a..b,c.json#2"]
    folder = store.open("aaa1").path
    assert sides.find(store, str(folder)).runs[0].id == "aaa1"
    assert sides.find(store, str(folder / "run.jsonl")).runs[0].id == "aaa1"


def test_an_unreadable_end_of_a_range_is_an_error_and_a_middle_is_passed_over(store: Store) -> None:
    assert [run.id for run in sides.find(store, "bbb1..ccc1").runs] == ["bbb1", "ccc1"]
    with pytest.raises(StoreError):
        sides.find(store, "bad1..ccc1")
