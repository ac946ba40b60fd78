"""Changes that are known: a file beside the store, with reasons, which the gate and the report respect and which hides nothing larger."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.codec.known import FILE, known_reason, load_known
from steelyard.errors import SteelyardError
from steelyard.report.web.gather import ReportRequest, gather
from steelyard.store.runs import Store
from tests.report.nights import simulate
from tests.report.one_run import one_run


def test_a_store_without_the_file_knows_nothing(tmp_path: Path) -> None:
    assert load_known(tmp_path) == ()


def test_a_known_change_covers_its_cases_up_to_its_size(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('"op/a*" = "new rounding"\n["op/b[n=1]@*"]\nreason = "waits"\nmost = "5%"\n')
    known = load_known(tmp_path)
    assert known_reason(known, "op/a[n=1]@torch/eager:eval", 9.0) == "new rounding"
    assert known_reason(known, "op/b[n=1]@torch/eager:eval", 1.04) == "waits"
    assert known_reason(known, "op/b[n=1]@torch/eager:eval", 1.06) == "" == known_reason(known, "op/c", 1.04)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('["op/a*"]\nmost = "5%"\n', "reason: missing"),
        ('["op/a*"]\nreason = "x"\nmuch = 1\n', "unknown key"),
        ('"op/a*" = 3\n', "expected a table"),
    ],
)
def test_mistakes_are_told_by_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SteelyardError, match=said):
        load_known(tmp_path)


def test_the_gate_lets_a_known_change_pass_and_no_larger_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    one_run(store)
    asked = ["gate", "onerun", "--store", str(store.root), "--no-summary"]
    assert main(asked) == 4
    (store.root / FILE).write_text('"op/slow*" = "x"\n"op/rather*" = "x"\n')
    assert main(asked) == 0 and "known: x" in capsys.readouterr().out
    (store.root / FILE).write_text('["op/slow*"]\nreason = "x"\nmost = "3%"\n')
    assert main(asked) == 4


def test_a_known_change_is_no_alarm_on_a_page_and_says_why(tmp_path: Path) -> None:
    store = simulate(tmp_path / "store").store
    asked = ReportRequest(("latest~59..latest",))
    news = gather(store, asked)
    assert "Slower since" in news["banner"]["text"]
    (case,) = [item["case"] for item in news["history"]["series"] if item["changes"]]
    (store.root / FILE).write_text(f'["{case}"]\nreason = "the new attention"\n')
    told = gather(store, asked)
    assert "Slower since" not in told["banner"]["text"]
    assert [change["known"] for item in told["history"]["series"] for change in item["changes"]] == ["the new attention"]
