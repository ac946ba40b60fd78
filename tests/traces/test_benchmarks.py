"""From a trace to a benchmark: what convert writes can be read, checked and run, and a run of it predicts the step."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from steelyard.analyze.prediction import predict
from steelyard.cli.main import main
from steelyard.codec import load_experiment
from steelyard.dialects.param import expand
from steelyard.model.record import Figure, Record
from steelyard.traces.reading import SCHEMAS, is_trace
from tests.traces import made


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A trace with times: an add of 10 µs and a cat of 20 µs in a step of 100 µs."""
    trace, profile, out = tmp_path / "t.json", tmp_path / "p.json", tmp_path / "linked.json"
    trace.write_text(json.dumps(made.trace()))
    profile.write_text(json.dumps(made.profile(kernels=0)))
    assert main(["trace", "link", str(trace), str(profile), "-o", str(out)]) == 0
    return out


def test_a_native_experiment_has_each_call_with_its_weight(linked: Path, tmp_path: Path) -> None:
    for ending in ("toml", "json"):
        output = tmp_path / f"step.{ending}"
        assert main(["convert", str(linked), "--to", "config", "-o", str(output)]) == 0
        found = load_experiment(output)
        assert [(matrix.axes["op"], matrix.weight) for matrix in found.matrix] == [(("aten::cat",), 1.0), (("aten::add.Tensor",), 1.0)]
        assert found.recorded == pytest.approx(100e-6)
    assert main(["check", str(tmp_path / "step.toml")]) == 0


def test_what_the_recorder_noted_comes_first(linked: Path, tmp_path: Path) -> None:
    (tmp_path / "linked.environment.json").write_text(json.dumps({"threads": 2, "step_seconds": 0.25}))
    assert main(["convert", str(linked), "-o", str(tmp_path / "step.toml")]) == 0
    found = load_experiment(tmp_path / "step.toml")
    assert (found.recorded, found.matrix[0].threads) == (0.25, (2,))
    (tmp_path / "linked.environment.json").write_text(json.dumps({"threads": "x", "step_seconds": -1}))
    assert main(["convert", str(linked), "-o", str(tmp_path / "step.toml"), "--force"]) == 0
    assert load_experiment(tmp_path / "step.toml").matrix[0].threads == (1,)


@pytest.mark.parametrize("version", SCHEMAS)
def test_a_param_config_of_every_schema_is_one(tmp_path: Path, version: str) -> None:
    trace, output = tmp_path / "t.json", tmp_path / "config.json"
    trace.write_text(json.dumps(made.in_schema(version)))
    assert is_trace(trace)
    assert main(["convert", str(trace), "--to", "param", "-o", str(output)]) == 0
    sheet = expand.sheet(output)
    assert not sheet.mistakes
    assert [config.op for config in sheet.configs] == ["aten::add.Tensor", "aten::cat"]
    assert json.loads(output.read_text())["aten::add.Tensor"]["config"][0]["input"][0]["args"][0]["comment"].startswith(
        "1 call in the step"
    )


def test_what_cannot_be_called_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made.trace()
    data["nodes"].insert(1, made.node(50, "record_param_comms", 3, pg_name="0"))
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps(data))
    assert main(["convert", str(trace)]) == 3
    assert "node 50 (record_param_comms): it is a message between processes, 1 call left out" in capsys.readouterr().err
    assert main(["convert", str(trace), "--to", "v3"]) == 2
    (tmp_path / "x.json").write_text("{}")
    assert main(["convert", str(tmp_path / "x.json"), "--step", "1"]) == 2


def timed(name: str, value: float, half: float | None, status: str = "ok") -> Record:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Record(name, {}, status, metrics={"time": Figure(value, "s", "lower", low, high, 5)})  # type: ignore[arg-type]


def test_weights_and_errors_add_up() -> None:
    found = predict([timed("a", 1.0, 0.3), timed("b", 2.0, 0.2), timed("c", 9.0, 0.1, "failed")], {"a": 10, "b": 20, "c": 1}, 60.0)
    assert found is not None
    assert (found.seconds, found.calls, found.missing, found.recorded) == (50.0, 30, 1, 60.0)
    assert found.high == pytest.approx(50 + math.hypot(3, 4))
    assert found.low == pytest.approx(50 - math.hypot(3, 4))
    one = predict([timed("a", 1.0, None)], {"a": 2})
    assert one is not None and (one.seconds, one.low) == (2.0, None)
    assert predict([timed("a", 1.0, 0.1)], {}) is None


def test_a_run_tells_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STEELYARD_STORE", str(tmp_path / "store"))
    file = tmp_path / "x.toml"
    matrix = '[[matrix]]\nworkload = "fake/work"\nbackend = "fake"\nweight = {}\n[matrix.axes]\nseconds = {}\n'
    file.write_text('recorded = "1ms"\n[settings]\nbudget = "50ms"\n' + matrix.format(3, 1e-4) + matrix.format(2, 2e-4))
    assert main(["run", str(file)]) == 0
    assert "predicted from 5 calls" in capsys.readouterr().out
    assert main(["show", "latest", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    first, second = (record["metrics"]["time"]["value"] for record in shown["records"])
    assert shown["prediction"]["seconds"] == pytest.approx(3 * first + 2 * second)
    assert shown["prediction"]["recorded"] == 1e-3
    file.write_text('[[matrix]]\nworkload = "fake/work"\nweight = -1\n')
    assert main(["check", str(file)]) == 2


def test_params_own_programs(linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "param", "trace-tool", "--input", str(linked), "--list-op", "--detail", "--json", "--clean"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["aten::cat"]["count"] == 1
    assert listed["aten::cat"]["inputs"][0]["input"]["args"][1] == {"type": "int", "value": 0}
    assert main(["as", "param", "trace-tool", "--input", str(linked), "--list_tensor", "--tree", "--node", "4", "--graph"]) == 0
    assert "tensor 7 storage 8+0 float32[2, 3] cpu" in capsys.readouterr().out
    assert (tmp_path / "linked.dot").read_text().startswith("digraph")
    assert main(["as", "param", "trace-tool", "--input", str(linked)]) == 2
    (tmp_path / "none.json").write_text(json.dumps({"schema": "1.1.1", "nodes": []}))
    for words, code in ((["--list-op"], 0), (["--graph"], 2), (["--node", "1"], 2), (["--tree", "--step-annotation", ""], 2)):
        assert main(["as", "param", "trace-tool", "--input", str(tmp_path / "none.json"), *words]) == code
    capsys.readouterr()
    assert main(["as", "param", "validate", "--trace-path", str(linked)]) == 0
    assert "num ops: 3, num comms: 0, num triton ops: 0" in capsys.readouterr().out
    data = made.trace()
    data["nodes"].insert(1, made.node(50, "record_param_comms", 3))
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "rank-0.json").write_text(json.dumps(data))
    assert main(["as", "param", "validate", "--trace-path", str(tmp_path / "ranks")]) == 3
    assert main(["as", "param", "validate", "--trace-path", str(tmp_path)]) == 2
