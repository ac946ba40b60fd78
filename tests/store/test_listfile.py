"""JSON documents with a list of rows, which other systems' results are added to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.store.listfile import ListFile

BESIDE = {"trigger": {}, "about": {"packages": []}}


def test_rows_are_added_and_what_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"trigger": {"timestamp": "1"}, "rows": [1, "x"], "other": 2}')
    ListFile(path, "rows", BESIDE).write({"a": 1})
    assert json.loads(path.read_text()) == {"trigger": {"timestamp": "1"}, "rows": [1, "x", {"a": 1}], "other": 2}


@pytest.mark.parametrize(
    "held",
    [
        [1], None, {"rows": {}}, {"records": [1]}, {"rows": [], "trigger": []}, {"rows": [], "about": "x"}, {"about": None},
        {"rows": [], "about": {"packages": {}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_such_document_is_not_touched(held: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(held))
    with pytest.raises(UsageError, match="cannot add to"):
        ListFile(path, "rows", BESIDE)
    assert json.loads(path.read_text()) == held


def test_a_place_that_cannot_be_written_is_told_before_there_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for place, told in {
        "": "it is a folder",
        "none/r.json": "there is no folder",
        "loop.json": "loop",
        "x" * 300: "File name too long",
    }.items():
        with pytest.raises(UsageError) as error:
            ListFile(tmp_path / place, "rows", BESIDE)
        assert told in str(error.value)
