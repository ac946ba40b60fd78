"""Which configs have a row already, also from a runner beside this one, and how each came out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.ledger import Ledger, doubtful, outcome
from steelyard.dialects.ptxla.matrix import read_experiment
from steelyard.dialects.ptxla.rows import RowTally, take
from steelyard.engine import run as supervision
from steelyard.errors import StoreError, UsageError
from tests.dialects.ptxla.stage import Stage, perform
from tests.dialects.ptxla.stage import rows as written
from tests.dialects.ptxla.stored import EAGER, OPENXLA, stored

DUMMY = RunnerOptions(suite_name="dummy", repeat=4)
MODEL, POINT = {"model_name": "m"}, read_experiment('{"accelerator": "cuda"}')


def opened(folder: Path, options: RunnerOptions = DUMMY, warnings: list[str] | None = None) -> Ledger:
    return Ledger(folder / "out" / "r.jsonl", options, ([] if warnings is None else warnings).append)


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


def test_a_file_that_is_gone_has_no_rows(tmp_path: Path) -> None:
    mine = opened(tmp_path)
    mine.path.write_text(json.dumps(of_the_original()) + "\n")
    assert mine.known(MODEL, POINT) is not None
    mine.path.unlink()
    assert mine.known(MODEL, POINT) is None


@pytest.mark.parametrize("code", ["VERIFIER_SKIPPED", "SKIP_VERIFICATION"])
def test_rows_of_any_version_of_the_original_count(tmp_path: Path, code: str) -> None:
    mine = opened(tmp_path)
    mine.path.write_text(json.dumps(of_the_original(code)) + "\n")
    assert mine.known(MODEL, POINT) is not None
    assert opened(tmp_path, RunnerOptions(suite_name="dummy", repeat=4, verify=True)).known(MODEL, POINT) is None


def test_lines_that_are_no_rows_are_warned_of(tmp_path: Path) -> None:
    opened(tmp_path).path.write_text("{}\nno json\n" + json.dumps(of_the_original()) + "\n")
    warnings: list[str] = []
    assert opened(tmp_path, DUMMY, warnings).known(MODEL, POINT) is not None
    assert warnings and all(text.startswith("r.jsonl: ") for text in warnings)


def test_nobody_begins_a_file_anew_that_another_runner_writes_to(tmp_path: Path) -> None:
    anew = RunnerOptions(suite_name="dummy", no_resume=True)
    first = opened(tmp_path)
    first.path.write_text("{}\n")
    with pytest.raises(UsageError, match="another run is writing"):
        opened(tmp_path, anew)
    assert first.path.read_text() == "{}\n"
    first.close()
    opened(tmp_path, anew).close()
    assert first.path.read_text() == ""


def test_a_single_config_deletes_nothing_and_is_always_run(tmp_path: Path) -> None:
    opened(tmp_path).path.write_text(json.dumps(of_the_original()) + "\n")
    single = RunnerOptions(suite_name="dummy", repeat=4, no_resume=True, model_config="{}", experiment_config="{}")
    mine = opened(tmp_path, single)
    assert mine.known(MODEL, POINT) is None and mine.path.read_text()


def test_what_cannot_be_written_is_said_before_anything_runs(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        perform(tmp_path)
    assert not stage.jobs


def test_a_row_that_is_added_is_whole(tmp_path: Path) -> None:
    row = take(of_the_original(), RowTally())
    assert row is not None
    mine = opened(tmp_path)
    mine.add(row)
    assert json.loads(mine.path.read_text())["model"]["model_name"] == "m"
    assert mine.known(MODEL, POINT) is not None


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


@pytest.mark.parametrize(
    ("metrics", "code", "doubt"),
    [
        ([1.0], "PASS", False), ([1.0], "FAIL", False), ([1.0], "VERIFIER_SKIPPED", False), ([1.0], "SKIP_VERIFICATION", False),
        ([1.0], "EXCEPTION_RAISED", True), ([1.0], "NONDETERMINISTIC_EAGER_RUN", True), ([1.0], "EAGER_FAILED", True),
        ({"error": "boom"}, "VERIFIER_DIDNT_RUN", False),
    ],
)  # fmt: skip
def test_verification_without_a_result_is_a_doubt(metrics: Any, code: str, doubt: bool) -> None:
    row = take(stored("m", OPENXLA, metrics, verification_code=code), RowTally())
    assert row is not None and doubtful(row) == doubt


def test_two_runners_beside_each_other_make_one_row_of_each_config(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one gets the devices only when another runner is done with everything."""
    hold, others = supervision.locks.hold, list[int]()

    @contextmanager
    def late(*words: Any) -> Iterator[None]:
        monkeypatch.setattr(supervision.locks, "hold", hold)
        perform(tmp_path, test=("eval", "train"))
        others.append(len(stage.cases))
        stage.cases.clear()
        with hold(*words):
            yield

    monkeypatch.setattr(supervision.locks, "hold", late)
    made, heard = perform(tmp_path, test=("eval", "train"))
    assert (len(stage.cases), others, len(written(tmp_path))) == (0, [2], 2)
    assert made.statuses == ["ok", "ok"]
    assert sum("a row for it already" in line for line in heard.lines) == 2


def test_another_runner_may_have_the_machine_between_two_configs(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, held = supervision.locks.hold, list[int]()

    @contextmanager
    def counted(*words: Any) -> Iterator[None]:
        held.append(len(stage.cases))
        with hold(*words):
            yield

    monkeypatch.setattr(supervision.locks, "hold", counted)
    perform(tmp_path, test=("eval", "train"))
    assert held == [0, 1]
