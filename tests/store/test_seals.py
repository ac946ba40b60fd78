"""A sealed file that lost or changed a line says so, and carries the proof of who wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.store import proof
from steelyard.store.runs import Header, Run, Store, read_run
from tests.store.made import filled, pair, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / ".steelyard")


def sealed(store: Store, records: int = 4, pairs: int = 2) -> Run:
    with store.create(Header()) as writer:
        for number in range(1, records + 1):
            writer.append(record(number))
        for number in range(2, 2 + pairs):
            writer.append_pair(pair(number))
        writer.seal()
    return read_run(writer.path)


def lines(run: Run) -> list[bytes]:
    return (run.path / "run.jsonl").read_bytes().splitlines(keepends=True)


def rewrite(run: Run, kept: list[bytes]) -> Run:
    (run.path / "run.jsonl").write_bytes(b"".join(kept))
    return read_run(run.path)


def test_a_whole_run_is_whole_and_proven(store: Store) -> None:
    run = sealed(store)
    assert run.proven and not run.warnings and run.loss.records == run.loss.pairs == 0


@pytest.mark.parametrize(("gone", "words"), [((1, 2), "2 of 4 records are missing"), ((5,), "1 of 2 comparisons is missing")])
def test_deleted_lines_are_counted_everywhere(store: Store, gone: tuple[int, ...], words: str) -> None:
    run = sealed(store)
    again = rewrite(run, [line for place, line in enumerate(lines(run)) if place not in gone])
    assert words in again.warnings[0] and not again.proven
    [listed] = store.runs()
    assert words in listed.warning and sum(listed.counts.values()) == len(again.records)


def test_a_run_without_any_readable_record_counts_none(store: Store) -> None:
    run = sealed(store, pairs=0)
    again = rewrite(run, [line.replace(b'{"record":', b'{"broken\0rd":') for line in lines(run)])
    assert "4 of 4 records are missing" in again.warnings[0] and store.runs()[0].counts == {}


@given(st.data())
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    run = sealed(store, 2, 1)
    whole = (run.path / "run.jsonl").read_bytes()
    end = whole.rindex(b'{"seal"')
    place = data.draw(st.integers(0, end - 1))
    byte = data.draw(st.integers(32, 126).filter(lambda value: value != whole[place]))
    (run.path / "run.jsonl").write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
    try:
        again = read_run(run.path)
    except Exception as error:
        assert "header" in str(error)
        return
    assert again.warnings and not again.proven


def test_a_line_after_the_seal_is_noticed(store: Store) -> None:
    run = sealed(store)
    again = rewrite(run, [*lines(run), lines(run)[1]])
    assert again.warnings and not again.proven


def test_a_seal_of_an_older_version_is_read_and_proves_nothing(store: Store) -> None:
    run = sealed(store)
    *kept, last = lines(run)
    old = {name: value for name, value in json.loads(last)["seal"].items() if name not in ("size", "digest", "proof")}
    again = rewrite(run, [*kept, json.dumps({"seal": old}).encode() + b"\n"])
    assert again.seal and not again.warnings and not again.proven
    assert store.runs()[0].counts == {"ok": 4}
    assert "missing from this file" in rewrite(run, [*kept[:-3], json.dumps({"seal": old}).encode() + b"\n"]).warnings[0]


@pytest.mark.parametrize("own", [True, False])
def test_a_resumed_run_is_sealed_over_both_halves_and_proven_where_the_caller_knows_both(store: Store, own: bool) -> None:
    filled(store, 2, seal=False)
    writer = store.resume("f")
    assert writer and not writer.own
    writer.own = own
    with writer:
        writer.append(record(3))
        writer.seal()
    again = read_run(writer.path)
    assert again.proven is own and not again.warnings and len(again.records) == 3


def test_another_key_proves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sealed(store)
    (tmp_path / "other").write_bytes(b"another key of somebody else")
    monkeypatch.setenv("STEELYARD_KEY", str(tmp_path / "other"))
    assert not read_run(run.path).proven
    monkeypatch.setenv("STEELYARD_KEY", str(tmp_path / "gone"))
    assert not read_run(run.path).proven and not sealed(store).proven


def test_a_key_is_made_once_for_its_owner_alone(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEELYARD_KEY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    first, second = sealed(store), sealed(store)
    assert first.proven and second.proven and read_run(first.path).proven
    assert proof.place().stat().st_mode & 0o777 == 0o600 and [path.name for path in proof.place().parent.iterdir()] == ["run.key"]
    assert not replace(first, seal=replace(first.seal, proof="é")).proven  # type: ignore[type-var]
