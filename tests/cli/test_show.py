"""A run, a record, a workload and raw samples, by reference."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.store.runs import Header, Store
from tests.report.made import softmax


@pytest.fixture
def store(tmp_path: Path) -> str:
    run = softmax()
    with Store(tmp_path).create(Header(id="k3f9", machine=run.header.machine)) as writer:
        for item in run.records:
            writer.append(item, {"block_time": ("s", "<f8", struct.pack("<3d", 0.1, 1e-5, 2e-5))})
        for pair in run.pairs:
            writer.append_pair(pair)
        writer.seal()
    return str(tmp_path)


def test_a_run_is_the_table_again(store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.report.test_text import SOFTMAX

    monkeypatch.setenv("COLUMNS", "100")
    assert main(["show", "--store", store]) == 0
    assert capsys.readouterr().out == f"{SOFTMAX}\n"


@pytest.mark.parametrize("ref", ["k3f9/2", "latest/2", softmax().records[1].id])
def test_a_record_is_its_page(ref: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", ref, "--store", store]) == 0
    shown = capsys.readouterr().out
    assert "k3f9/2" in shown and "▲ 13.8 % faster [13.1, 14.5]" in shown


def test_json_has_everything(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "k3f9", "--json", "--store", store])
    run = json.loads(capsys.readouterr().out)
    assert (len(run["records"]), len(run["pairs"]), run["header"]["id"]) == (4, 2, "k3f9")
    main(["show", "k3f9/2", "--json", "--store", store])
    one = json.loads(capsys.readouterr().out)
    assert one["number"] == 2 and one["record"]["id"] == run["records"][1]["id"] and len(one["pairs"]) == 1


def test_raw_samples_come_in_full_precision(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "k3f9/1", "--samples", "--store", store])
    head, *values = capsys.readouterr().out.splitlines()
    assert head.startswith("# op/softmax[") and head.endswith("block_time  in s, 3 values") and values == ["0.1", "1e-05", "2e-05"]
    main(["show", "k3f9", "--samples", "--json", "--store", store])
    assert [item["values"] for item in json.loads(capsys.readouterr().out)] == [[0.1, 1e-05, 2e-05]] * 4


def test_the_schema_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--schema"]) == 0
    assert "$defs" in json.loads(capsys.readouterr().out)


def test_a_workload_is_described(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "op/softmax", "--store", store]) == 0
    shown = capsys.readouterr().out
    assert "eager, " in shown and "compile" in shown and "steelyard run op/softmax -a m=512" in shown
    assert main(["show", "op/softmax", "--samples", "--store", store]) == 2


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("op/sofmax", "op/softmax"),
        ("k3f8", "k3f9"),
        ("k3f9/9", "it has 4 records"),
        ("latest~7", "latest~0"),
        ("op/none@torch/eager:eval", "measure it"),
    ],
)
def test_a_reference_to_nothing_says_what_is_near(ref: str, hint: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", ref, "--store", store]) == 2
    said = capsys.readouterr()
    assert said.out == "" and hint in said.err


def test_an_unfinished_run_says_so_beside_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = softmax().records
    with Store(tmp_path).create(Header(cases=[item.id for item in records])) as writer:
        writer.append(records[0])
    assert main(["show", "--json", "--store", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "unfinished, 3 cases are missing" in said.err and json.loads(said.out)["seal"] is None
