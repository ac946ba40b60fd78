"""Files in every form that the upload action reads, and what is skipped in them, with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from steelyard.dialects.v3 import reading
from steelyard.errors import StoreError, UsageError
from tests.dialects.v3.made import row, write

A, B, C = row("a"), row("b"), row("c")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps([A, B]), ["r[0]", "r[1]"]),
        (json.dumps(A), ["r"]),
        (json.dumps(A, indent=2), ["r"]),
        (f"{json.dumps(A)}\n{json.dumps([B, C])}\n", ["r:1", "r:2[0]", "r:2[1]"]),
        (f"{json.dumps(A)}\r\n\r\n{json.dumps(B)}", ["r:1", "r:3"]),
        ("\ufeff" + json.dumps([A]), ["r[0]"]),
    ],
)
def test_every_form_is_read_with_places(text: str, names: list[str]) -> None:
    found = reading.parse(text.encode(), "r")
    assert [placed.where for placed in found.found] == names and not found.trouble


def test_bad_lines_are_told_with_their_place_and_skipped() -> None:
    text = f'{json.dumps(A)}\n{{"metric": \nnull\n[3, {json.dumps(B)}]\n{{"benchmark": {{}}}}\n\xff\n{"[" * 100_000}\n'
    found = reading.parse(text.encode("latin-1"), "r.json")
    assert [placed.where for placed in found.found] == ["r.json:1", "r.json:4[1]"]
    assert [error.where for error in found.trouble] == ["r.json:2", "r.json:3", "r.json:4[0]", "r.json:5", "r.json:6", "r.json:7"]
    assert found.warnings[0].startswith("r.json:2 was skipped: not JSON: ")
    assert found.warnings[3] == "r.json:5 was skipped: metric: is missing, so it is not a record of the database"
    with pytest.raises(UsageError, match="6 mistakes"):
        found.refuse()


def test_very_many_bad_lines_are_counted() -> None:
    found = reading.parse(json.dumps(A).encode() + b"\n" + b"x\n" * 100, "r")
    assert len(found.warnings) == 21 and found.warnings[-1] == "… and 80 more records were skipped"


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (b"", "r", "the file is empty"),
        (b" \r\n\n", "r", "the file is empty"),
        (b"x\ny\nz\n", "r:1", "not JSON: Expecting value"),
        (f"{json.dumps(A, indent=2)}\n{json.dumps(B, indent=2)}".encode(), "r:26", "not JSON: Extra data"),
        (bytes(range(256)) * 9, "r:1", "not text in UTF-8"),
        (json.dumps(A).encode("utf-16"), "r:1", "not text in UTF-8"),
        (b'{"metric": 1' + b"0" * 5000 + b"}", "r:1", "not JSON: a number has too many digits"),
        (b"[" * 100_000, "r:1", "not JSON: nested too deep"),
        (b"null", "r", "expected an object, not null"),
    ],
)
def test_what_holds_no_json_is_told_once(content: bytes, where: str, what: str) -> None:
    (error,) = reading.parse(content, "r").trouble
    assert (error.where, error.what) == (where, what)


def test_one_bad_line_alone_is_refused_by_itself() -> None:
    found = reading.parse(b'{"metric": ', "r")
    with pytest.raises(UsageError, match="not JSON") as told:
        found.refuse()
    assert told.value.where == "r:1"


def test_folders_are_not_looked_into_deeper_and_gzip_is_undone(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [A])
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(B).encode()))
    (tmp_path / "c.txt").write_text("no")
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper" / "d.json", [C])
    files = reading.files([tmp_path, tmp_path / "a.json"])
    assert [path.name for path in files] == ["a.json", "b.json.gz"]
    assert [placed.record["metric"]["name"] for path in files for placed in reading.read(path).found] == ["a", "b"]


def test_a_damaged_or_endless_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps([A] * 50).encode())[:-20])
    with pytest.raises(StoreError, match="cannot unpack"):
        reading.read(tmp_path / "cut.json.gz")
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 3_000_000))
    monkeypatch.setenv("STEELYARD_MAX_FILE", "1MiB")
    with pytest.raises(StoreError, match="too large"):
        reading.read(tmp_path / "bomb.json.gz")


def test_a_file_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "results.json", [A])
    with pytest.raises(UsageError, match=r"did you mean results\.json"):
        reading.read(tmp_path / "result.json")
