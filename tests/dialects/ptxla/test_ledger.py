"""The file of rows: continued, shared with runners beside this one, and never begun anew under another's hands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla import ledger, rows
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.ledger import Ledger, outcome
from steelyard.dialects.ptxla.matrix import read_experiment
from steelyard.dialects.ptxla.rows import RowTally, take
from steelyard.errors import StoreError, UsageError
from tests.dialects.ptxla.stored import EAGER, OPENXLA, stored
from tests.dialects.ptxla.test_runner import Stage, perform
from tests.dialects.ptxla.test_runner import rows as written

DUMMY = RunnerOptions(suite_name="dummy", repeat=4)
MODEL, POINT = {"model_name": "m"}, read_experiment('{"accelerator": "cuda"}')


def opened(folder: Path, options: RunnerOptions = DUMMY, warnings: list[str] | None = None) -> Ledger:
    return Ledger.open(folder / "out" / "r.jsonl", options, ([] if warnings is None else warnings).append)


def of_the_original(code: str = "VERIFIER_SKIPPED") -> dict[str, Any]:
    row = stored("m", EAGER, [2.0, 1.0, 1.0, 1.0], verification_code=code)
    return {**row, "model": {"suite_name": "dummy", "model_name": "m"}}


def test_rows_that_come_later_are_known_too(tmp_path: Path) -> None:
    mine = opened(tmp_path)
    assert mine.known(MODEL, POINT) is None
    with mine.path.open("a") as file:
        file.write(json.dumps(of_the_original())[:30])
    assert mine.known(MODEL, POINT) is None
    with mine.path.open("a") as file:
        file.write(json.dumps(of_the_original())[30:] + "\n")
    known = mine.known(MODEL, POINT)
    assert known is not None and known.name == "m"
    mine.path.write_text("")
    assert mine.known(MODEL, POINT) is None
    mine.path.unlink()
    assert mine.known(MODEL, POINT) is None


@pytest.mark.parametrize("code", ["VERIFIER_SKIPPED", "SKIP_VERIFICATION"])
def test_rows_of_any_version_of_the_original_count(tmp_path: Path, code: str) -> None:
    mine = opened(tmp_path)
    mine.path.write_text(json.dumps(of_the_original(code)) + "\n")
    assert mine.known(MODEL, POINT) is not None
    assert opened(tmp_path, RunnerOptions(suite_name="dummy", repeat=4, verify=True)).known(MODEL, POINT) is None


def test_nobody_begins_a_file_anew_that_another_runner_writes_to(tmp_path: Path) -> None:
    anew = RunnerOptions(suite_name="dummy", no_resume=True)
    first, beside = opened(tmp_path), opened(tmp_path)
    first.path.write_text("{}\n")
    with pytest.raises(UsageError, match="another runner writes"):
        opened(tmp_path, anew)
    assert first.path.read_text() == "{}\n"
    first.close()
    beside.close()
    opened(tmp_path, anew).close()
    assert first.path.read_text() == ""


def test_a_single_config_deletes_nothing_and_is_always_run(tmp_path: Path) -> None:
    opened(tmp_path).path.write_text(json.dumps(of_the_original()) + "\n")
    single = RunnerOptions(suite_name="dummy", repeat=4, no_resume=True, model_config="{}", experiment_config="{}")
    mine = opened(tmp_path, single)
    assert mine.known(MODEL, POINT) is None and mine.path.read_text()


@pytest.mark.parametrize("place", ["out", "out/r.jsonl", "out/r.jsonl/x"])
def test_what_cannot_be_written_is_said_before_anything_runs(tmp_path: Path, place: str) -> None:
    blocked = tmp_path / place
    blocked.mkdir(parents=True) if place != "out" else blocked.write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        opened(tmp_path)


def test_a_disk_that_fills_up_is_said_with_what_stays(tmp_path: Path) -> None:
    row = take(of_the_original(), RowTally())
    assert row is not None
    mine = Ledger(Path("/dev/full"), DUMMY)
    with pytest.raises(StoreError, match="cannot write '/dev/full'"):
        mine.add(row)


def test_a_row_that_is_written_piece_by_piece_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows.os.write
    monkeypatch.setattr(rows.os, "write", lambda descriptor, data: whole(descriptor, data[:7]))
    row = take(of_the_original(), RowTally())
    assert row is not None
    rows.append(tmp_path / "r.jsonl", row)
    assert json.loads((tmp_path / "r.jsonl").read_text())["model"]["model_name"] == "m"


@pytest.mark.parametrize(
    ("metrics", "more", "word"),
    [
        ({"error": "SKIP"}, {}, "skipped"),
        ({"error": "boom"}, {}, "failed"),
        ({"error": "boom"}, {"steelyard": {"status": "unsupported"}}, "unsupported"),
        ({"error": "boom"}, {"steelyard": {"status": "ok"}}, "failed"),
        ({"error": "boom"}, {"steelyard": {"status": ["x"]}}, "failed"),
        ([1.0], {"verification_code": "FAIL"}, "wrong"),
        ([1.0], {"steelyard": 3}, "ok"),
    ],
)
def test_how_a_row_came_out(metrics: Any, more: dict[str, Any], word: str) -> None:
    row = take(stored("m", OPENXLA, metrics, **more), RowTally())
    assert row is not None and outcome(row) == word


@dataclass
class Late(Stage):
    """A stage that gets the devices only when another runner is done with everything."""

    folder: Path = Path()
    others: int = 0

    @contextmanager
    def talking(self, experiment: Any, variables: Mapping[str, str], threads: int, timeout: float) -> Iterator[Stage]:
        other = Stage()
        perform(self.folder, other, test=("eval", "train"))
        self.others += len(other.jobs)
        yield self


def test_two_runners_beside_each_other_make_one_row_of_each_config(tmp_path: Path) -> None:
    late = Late(folder=tmp_path)
    made, heard = perform(tmp_path, late, test=("eval", "train"))
    assert (len(late.jobs), late.others, len(written(tmp_path))) == (0, 2, 2)
    assert made.statuses == ["ok", "ok"]
    assert sum("a row for it already" in line for line in heard.lines) == 2


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(ledger.fcntl, "flock", refuse)
    made = opened(tmp_path)
    assert made.lock is None
    made.path.write_text("{}\n")
    assert not opened(tmp_path, RunnerOptions(suite_name="dummy", no_resume=True)).path.read_text()
