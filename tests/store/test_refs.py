"""What a user types must lead to the one result that was meant, or to a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.errors import StoreError, UsageError
from steelyard.store.refs import resolve
from steelyard.store.runs import Header, Store
from tests.store.made import case, filled, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / ".steelyard")
    for number, id in enumerate(("k3f9", "k3zz", "m2ab"), 1):
        filled(made, number, created=f"2026-01-0{number}T00:00:00Z", id=id)
    broken = made.folder / "20270101T000000-zzzz"
    broken.mkdir()
    (broken / "run.jsonl").write_text("")
    return made


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("latest", "m2ab"),
        ("latest~0", "m2ab"),
        ("latest~2", "k3f9"),
        ("latest/2", "m2ab/2"),
        ("latest~1/1", "k3zz/1"),
        ("k3f9", "k3f9"),
        ("m", "m2ab"),
        ("k3z/2", "k3zz/2"),
        (case(1), "m2ab/1"),
        ("op/a[n=3]@torch/eager+eager:eval:threads=1", "m2ab/3"),
    ],
)
def test_references(store: Store, ref: str, expected: str) -> None:
    found = resolve(store, ref)
    assert str(found) == expected
    assert (found.record is None) == (found.number is None)


def test_a_record_is_the_one_of_that_number(store: Store) -> None:
    record = resolve(store, "m2ab/3").record
    assert record is not None
    assert record.id == case(3)


def test_a_path_needs_no_store(store: Store, tmp_path: Path) -> None:
    run = store.open("k3f9")
    for path in (run.path, run.path / "run.jsonl"):
        assert resolve(Store(tmp_path / "none"), str(path)).run == run


def test_a_whole_id_is_never_ambiguous(store: Store) -> None:
    filled(store, 1, id="k3f9z")
    assert str(resolve(store, "k3f9")) == "k3f9"


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("k3", r"ambiguous(.|\n)*k3zz(.|\n)*k3f9"),
        ("k3f8", "did you mean k3f9"),
        ("lastest", "did you mean latest"),
        ("latest~3", r"the store has 3(.|\n)*latest~2"),
        ("k3f9/2", "has no record 2"),
        ("k3f9/0", "has no record 0"),
        ("no/such/path", "no run named"),
        ("op/a[n=33]@torch/eager:eval", r"no record of(.|\n)*did you mean op/a"),
        ("op/b@torch/eager:eval", r"no record of op/b(.|\n)*steelyard run"),
        ("op/b@torch", "not a case id"),
        ("x" * 5000, "no run named"),
    ],
)
def test_what_cannot_be_found_says_what_is_near(store: Store, ref: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        resolve(store, ref)


def test_a_path_that_is_no_run_says_so(store: Store, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(StoreError, match="not a run"):
            resolve(store, str(path))
    with pytest.raises(StoreError, match="no readable header"):
        resolve(store, "zzzz")


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    for ref in ("latest", "k3f9"):
        with pytest.raises(UsageError, match="steelyard run"):
            resolve(Store(tmp_path / "none"), ref)


def test_a_run_of_a_wrong_clock_is_not_the_latest_for_ever(tmp_path: Path) -> None:
    store = Store(tmp_path / "clocks")
    late = filled(store, created="2999-01-01T00:00:00Z")
    assert resolve(store, "latest").run.id == late.id
    with store.create(Header(cases=[case(1)])) as writer:
        writer.append(record(1))
        writer.seal()
    assert writer.warnings and late.id in writer.warnings[0] and "check the clock" in writer.warnings[0]
    assert resolve(store, "latest").run.id == resolve(store, case(1)).run.id == writer.id
    assert resolve(store, "latest~1").run.id == late.id
    assert ["check the clock" in info.warning for info in store.runs()] == [False, True]
