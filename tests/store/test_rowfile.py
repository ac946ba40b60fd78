"""A file of rows that several runs add to: each line whole, read on as it grows, and never begun anew under another's hands."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from steelyard.errors import StoreError, UsageError
from steelyard.store import rowfile
from steelyard.store.rowfile import SharedRowFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "r.jsonl"


def added(file: SharedRowFile) -> list[bytes]:
    """New lines, after a word where the file is read from its beginning."""
    found: list[bytes] = []
    found += file.added(lambda: found.append(b"anew"))
    return found


def test_lines_that_come_later_are_read_on_and_a_line_without_an_end_again(path: Path) -> None:
    mine = SharedRowFile(path)
    assert added(mine) == [b"anew"]
    path.write_text('{"a": 1}\n{"b"')
    assert added(mine) == [b'{"a": 1}\n', b'{"b"']
    with path.open("a") as file:
        file.write(": 2}\n")
    assert added(mine) == [b'{"b": 2}\n']
    assert added(mine) == []


def test_a_file_that_was_cut_or_replaced_is_read_from_its_beginning(path: Path) -> None:
    mine = SharedRowFile(path)
    path.write_text("1\n2\n")
    assert added(mine) == [b"anew", b"1\n", b"2\n"]
    path.write_text("3\n")
    assert added(mine) == [b"anew", b"3\n"]
    path.write_text("")
    assert added(mine) == [b"anew"]
    assert added(mine) == []
    path.with_name("other").write_text("4\n5\n")
    path.with_name("other").replace(path)
    assert added(mine) == [b"anew", b"4\n", b"5\n"]
    path.unlink()
    assert added(mine) == [b"anew"]
    path.write_text("6\n")
    assert added(mine) == [b"anew", b"6\n"]


def test_what_several_add_is_all_there_line_by_line(path: Path) -> None:
    first, second = SharedRowFile(path), SharedRowFile(path)
    for number in range(5):
        first.append({"a": number})
        second.append({"b": number})
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [{name: number} for number in range(5) for name in "ab"]
    assert added(first) == added(second)


def test_a_line_that_was_cut_short_is_ended_first(path: Path) -> None:
    mine = SharedRowFile(path)
    path.write_text('{"torn')
    mine.append({"a": 1})
    assert path.read_text() == '{"torn\n{"a": 1}\n'


def test_a_row_that_is_written_piece_by_piece_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    mine = SharedRowFile(path)
    monkeypatch.setattr(rowfile.os, "write", lambda descriptor, data: whole(descriptor, data[:7]))
    mine.append({"name": "x" * 100})
    assert json.loads(path.read_text()) == {"name": "x" * 100}


def test_a_row_is_on_disk_when_it_was_added(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, synced = SharedRowFile(path), list[str]()
    monkeypatch.setattr(rowfile.os, "fsync", lambda descriptor: synced.append(path.read_text()))
    mine.append({"a": 1})
    assert synced == ['{"a": 1}\n']


def test_nobody_begins_a_file_anew_that_another_run_writes_to(path: Path) -> None:
    first, beside = SharedRowFile(path), SharedRowFile(path)
    path.write_text("{}\n")
    with pytest.raises(UsageError, match="another run is writing to"):
        SharedRowFile(path, anew=True)
    assert path.read_text() == "{}\n"
    first.close()
    beside.close()
    first.close()
    anew = SharedRowFile(path, anew=True)
    assert path.read_text() == ""
    with pytest.raises(UsageError, match="another run is writing to"):
        SharedRowFile(path, anew=True)
    anew.append({"a": 1})
    SharedRowFile(path).append({"b": 2})
    assert len(list(anew.added())) == 2


def test_a_file_that_another_began_anew_meanwhile_is_claimed_where_it_is_now(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = fcntl.flock, list[int]()

    def replaced_once(descriptor: int, how: int) -> None:
        real(descriptor, how)
        tries.append(how)
        if len(tries) == 1:
            path.unlink()

    monkeypatch.setattr(rowfile.fcntl, "flock", replaced_once)
    mine = SharedRowFile(path)
    assert len(tries) == 2 and path.exists()
    mine.append({"a": 1})
    assert list(mine.added()) == [b'{"a": 1}\n']


@pytest.mark.parametrize("place", ["out", "out/r.jsonl", "out/r.jsonl/x"])
def test_what_cannot_be_written_is_said_before_anything_runs(tmp_path: Path, path: Path, place: str) -> None:
    blocked = tmp_path / place
    blocked.mkdir(parents=True) if place != "out" else blocked.write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        SharedRowFile(path)


def test_a_disk_that_fills_up_is_said_with_what_stays() -> None:
    mine = SharedRowFile(Path("/dev/full"))
    with pytest.raises(StoreError, match=r"(?s)cannot write.*/dev/full|/dev/full.*cannot write"):
        mine.append({"a": 1})


def test_a_file_system_without_locks_is_no_obstacle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(rowfile.fcntl, "flock", refuse)
    mine = SharedRowFile(path)
    mine.append({"a": 1})
    mine.close()
    SharedRowFile(path, anew=True)
    assert path.read_text() == ""
