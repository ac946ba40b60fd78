"""What `as param` measured is a run like any other: listed, shown, compared, gated, reported; so is a file of the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.param import results
from steelyard.param import config, spec, tensor, together
from tests.dialects.param.test_as_param import here, write

__all__ = ["here"]
pytestmark = pytest.mark.torch
COUNTS = ("-w", "1", "-i", "8", "-b")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(words)) == code
    found = capsys.readouterr()
    return found.out + found.err


def original(times: list[float], op: str = "torch.neg", size: int = 4) -> str:
    """A file as the original writes it: a header without our options, records without our part."""
    header = {
        "run_options": {"device": "cpu", "pass_type": "forward"},
        "sys_info": {"pytorch_version": "2.4.0"},
        "start_time": "2026-01-02T03:04:05",
    }
    metric = {"forward": {"warmup.time": [9.0], "measure.time": times, "warmup.gpu.memory": [0], "measure.gpu.memory": [0] * len(times)}}
    given = {"build": None, "input": {"args": [{"type": "tensor", "dtype": "float", "shape": [size]}], "kwargs": {}}}
    record = {"op_name": op, "id": "0|0|0", "metric": metric, "config": given}
    return "".join(json.dumps(line) + "\n" for line in (header, record, {"finish_time": "2026-01-02T03:04:06"}))


def test_a_run_is_in_the_store_and_every_command_reads_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(config("torch.neg", [spec(tensor(4)), spec(tensor(8))]), config("torch.exp", spec(tensor(4))))
    for name in ("one.json", "two.json"):
        assert main(["as", "param", "-c", "config.json", "-o", name, *COUNTS]) == 0
    listed = said(capsys, "list", "runs")
    assert listed.count("3 ok · config.json") == 2
    assert "torch.neg" in said(capsys, "show", "latest") and "3 ok" in said(capsys, "show", "latest")
    assert "forward.measure.time" in said(capsys, "show", "latest/1", "--samples")
    compared = said(capsys, "compare", "latest~1", "latest")
    assert "3" in compared and "torch.exp" in compared
    assert main(["gate", "latest~1", "latest"]) in (0, 4)
    assert main(["report", "latest", "-o", "page.html"]) == 0 and Path("page.html").stat().st_size > 10_000
    assert "3" in said(capsys, "compare", "one.json", "latest") and "torch.neg" in said(capsys, "show", "two.json")


def test_a_file_of_the_original_is_compared_with_what_is_measured_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("theirs.json").write_text(original([1.0 + 0.001 * number for number in range(12)]))
    Path("newer.json").write_text(original([3.0 + 0.001 * number for number in range(12)]))
    assert "slower" in said(capsys, "compare", "theirs.json", "newer.json")
    write(config("torch.neg", spec(tensor(4))))
    assert main(["as", "param", "-c", "config.json", "-o", "ours.json", "-w", "1", "-i", "12"]) == 0
    found = said(capsys, "compare", "theirs.json", "latest")
    assert "faster" in found and "torch.neg" in found


@pytest.mark.parametrize("words", [("--resume",), pytest.param((), marks=pytest.mark.deep)])
def test_a_config_run_by_run_is_another_case_than_by_as_param(words: tuple[str, ...], here: Path) -> None:
    write(config("torch.neg", spec(tensor(4))))
    assert main(["as", "param", "-c", "config.json", "-o", "out.json"]) == 0
    assert main(["run", "config.json", "--budget", "5ms", *words]) == 0
    assert main(["run", "config.json", "--mode", "call", "--fixed", "1+3", "--no-verify", *words]) == 0


def test_lines_that_are_none_cost_nothing_and_the_last_of_two_counts() -> None:
    text = original([1.0]) + "{}\nnot json\n" + '{"op_name": 3, "id": []}\n' + original([2.0]).splitlines()[1]
    found = results.lines(text.encode(), "x")
    assert found is not None
    (source,) = results.read(found, Path("x"))
    (result,) = source.results
    assert result.processes[0]["time"].value == 2e-3
    assert results.lines(b'{"model": {}}\n{}', "x") is None


def test_odd_records_are_results_that_say_so() -> None:
    odd: list[dict[str, Any]] = [
        {"op_name": "a", "id": "0", "metric": {}}, {"op_name": "b", "id": "0", "metric": {"forward": 5}},
        {"op_name": "c", "id": "0", "metric": {"forward": {"measure.time": ["x", None]}}, "config": 7, "steelyard": []},
        {"op_name": None, "id": "0", "metric": {"forward": {"measure.time": [1.0]}}, "config": {"input": {"args": "x"}}},
        {"op_name": "d", "id": "0", "metric": {}, "steelyard": {"status": "crashed", "error": "gone"}},
    ]  # fmt: skip
    header = {"run_options": {"device": 3, "cmd_args": {"threads": -1, "seed": "x"}}, "sys_info": None}
    (source,) = results.read(results.OutputLines((header, *odd)), Path("x"))
    assert [result.status for result in source.results] == ["skipped", "failed", "failed", "ok", "crashed"]
    assert together([]) == {}


def test_a_run_is_written_as_the_file_that_was_written_when_it_was_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = config("torch.neg", [spec(tensor(4)), spec(tensor(8)), spec(tensor(4))])
    write(
        again,
        config("torch.add", spec(tensor(4), {"type": "float", "value_range": [1, 2]})),
        config("torch.mm", spec(tensor(2), tensor(3))),
    )
    assert main(["as", "param", "-c", "config.json", "-o", "one.json", "--strict-exit", *COUNTS]) == 3
    assert "saved two.json" in said(capsys, "export", "--to", "param", "-o", "two.json")
    header, *written = map(json.loads, Path("one.json").read_text().splitlines())
    exported, *lines = map(json.loads, Path("two.json").read_text().splitlines())
    measured = [line for line in written if line.get("steelyard", {}).get("status") != "skipped"]
    by_id = {line["id"] + line["op_name"] if "id" in line else "": line for line in lines}
    assert [by_id[line["id"] + line["op_name"] if "id" in line else ""] for line in measured[:-1]] == measured[:-1]
    assert exported["run_options"]["iteration"] == header["run_options"]["iteration"] == 8
    assert set(exported["run_options"]) == set(header["run_options"]) and "finish_time" in lines[-1]
    said(capsys, "run", "fake/work", "--runs", "2")
    assert "has no call of an operator" in said(capsys, "export", "--to", "param", code=2)


def test_what_a_worker_need_not_say_again_is_in_every_record(here: Path) -> None:
    write(config("torch.neg", [spec(tensor(4)), spec(tensor(8)), spec(tensor(2))]))
    assert main(["as", "param", "-c", "config.json", "-o", "one.json", *COUNTS]) == 0
    (file,) = Path(".steelyard", "runs").glob("*/run.jsonl")
    records = [line["record"] for line in map(json.loads, file.read_text().splitlines()) if "record" in line]
    assert [record["case"]["params"]["input"]["args"][0]["shape"] for record in records] == [[4], [8], [2]]
    for name in ("environment", "source", "requested"):
        assert records[0][name] and all(record[name] == records[0][name] for record in records)
    assert records[0]["requested"]["fixed"]["repeats"] == 8 and "torch" in records[0]["environment"]
