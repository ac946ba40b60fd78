"""Rows are read from whatever is in the file, and what is wrong with it is counted, never raised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.ptxla import rows
from steelyard.dialects.ptxla.rows import Row, RowTally, accelerator_fits, backend_name, chooser, read, take
from steelyard.errors import UsageError
from steelyard.store.rowfile import SharedRowFile
from tests.dialects.ptxla.stored import A100, A6000, INDUCTOR, OPENXLA, V100, stored, write


def test_every_kind_of_bad_line_costs_itself_alone_and_is_counted(tmp_path: Path) -> None:
    good = stored("a", INDUCTOR, [1.0])
    lines = [
        "\ufeff", good, "\n", "  \n", "[1]\n", "nonsense\n", '{"model": {}}\n', json.dumps({**good, "metrics": None}) + "\n",
        json.dumps({**good, "model": {"model_name": 3}}) + "\n", json.dumps({**good, "note": 1}) + "\n",
        '{"model": {"model_name": "b"}, "experiment": {}, "metrics": {"total_time": [NaN, Infinity]}}\n', json.dumps(good)[:50],
    ]  # fmt: skip
    tally = RowTally()
    found = list(read(write(tmp_path / "r.jsonl", lines), tally))
    assert [row.name for row in found] == ["a", "a", "b"]
    assert found[2].metrics == {"total_time": [None, None]}
    assert tally.lines() == [
        "left out: a blank line: 2 rows, first r.jsonl:2",
        "left out: not an object: 1 row, first r.jsonl:4",
        "left out: not JSON: 1 row, first r.jsonl:5",
        "left out: experiment is missing or not an object: 1 row, first r.jsonl:6",
        "left out: metrics is missing or not an object: 1 row, first r.jsonl:7",
        "left out: model.model_name is missing or not text: 1 row, first r.jsonl:8",
        "ignored: unknown key note: 1 row, first r.jsonl:9",
        "left out: cut short, as a killed run leaves it: 1 row, first r.jsonl:11",
    ]


def test_a_file_with_ever_new_reasons_does_not_flood_the_terminal() -> None:
    tally = RowTally()
    for number in range(1000):
        tally.add(f"unknown key {number}", f"r.jsonl:{number}")
    assert len(tally.lines()) == 41 and tally.lines()[-1] == "left out or odd for other reasons: 960 rows, first r.jsonl:40"


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_what_cannot_be_opened_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        list(read(tmp_path / name, RowTally()))


@pytest.mark.parametrize(
    ("dynamo", "xla", "name"),
    [
        (None, None, "eager"), ("inductor", None, "inductor"), ("inductor", "PJRT", "inductor"), (None, "PJRT", "openxla+lazytensor"),
        ("openxla", "PJRT", "openxla+dynamo"), ("openxla", None, None), (None, "XRT", None), ("openxla_eval", "PJRT", None), ([], {}, None),
    ],
)  # fmt: skip
def test_backends_by_their_axes(dynamo: Any, xla: Any, name: str | None) -> None:
    assert backend_name(dynamo, xla) == name


@pytest.mark.parametrize(
    ("asked", "device", "fits"),
    [
        ("v100", V100, True), ("a6000", V100, False), ("a6000", A6000, True), ("a100", A100, True), ("v100", "Tesla V100-PCIE-32GB", True),
        ("a100", "NVIDIA A100 80GB PCIe", True), ("a100", "NVIDIA RTX A1000", False), ("H200", "NVIDIA H200", True), ("h200", None, False),
        ("a100", f"{V100} {A100}", False), ("xeon", "Intel(R) Xeon(R)", True), ("cuda", "anything", True),
    ],
)  # fmt: skip
def test_accelerators_by_short_name_kind_or_part(asked: str, device: Any, fits: bool) -> None:
    assert accelerator_fits(asked, "cuda", device) is fits


def test_models_by_regex_and_tier() -> None:
    assert {number: len(names) for number, names in rows.TIERS.items()} == {1: 13, 2: 27, 3: 4}
    chosen = chooser(["^hf_", "LLAMA"], ["Large"], [1], [3])
    found = ["hf_Bert", "hf_Bert_large", "llama", "dlrm", "dlrm2", "drq", "bert_PYTORCH"]
    assert [name for name in found if chosen(name)] == ["hf_Bert", "llama", "dlrm", "bert_PYTORCH"]
    assert chooser()("anything")


def test_a_tier_or_a_regex_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UsageError, match="no tier named '4'"):
        chooser(tiers=[4])
    with pytest.raises(UsageError, match="not a regular expression"):
        chooser(["("])


def test_a_row_comes_back_as_it_was_written_even_after_a_crash(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", ['{"model": {"mod'])
    made = take(stored("a", OPENXLA, [1.0, float("nan")], verification_mean_rel_error=0.01), RowTally())
    assert made
    file = SharedRowFile(path)
    file.append(made.plain())
    file.append(made.plain())
    _, first, second = path.read_text().splitlines()
    assert first == second and json.loads(first)["metrics"]["total_time"] == [1.0, None]
    assert list(json.loads(first)) == [*rows.TOP, "verification_mean_rel_error"]
    tally = RowTally()
    assert [row.backend for row in read(path, tally)] == ["openxla+dynamo"] * 2
    assert list(tally.counts) == ["left out: not JSON"]


@pytest.mark.parametrize(
    ("timestamp", "moment"),
    [
        (12, 12.0),
        ("12.5", 12.5),
        (None, None),
        ("soon", None),
        (-1, None),
        (1e300, None),
        (10**400, None),
        ([], None),
        ("nan", None),
        (True, None),
    ],
)
def test_a_timestamp_is_a_time_that_a_calendar_has(timestamp: Any, moment: float | None) -> None:
    assert Row({}, {}, {}, timestamp).moment == moment


@given(st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.booleans(), st.text(max_size=3))))
def test_times_are_all_sound_or_none_is_taken(values: list[Any]) -> None:
    found = rows.seconds(values)
    sound = all(isinstance(value, (int, float)) and not isinstance(value, bool) and 1e-12 <= value < 1e9 for value in values)
    assert (found is not None) is sound
    assert found is None or found == values
