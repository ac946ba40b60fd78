"""et_replay's flags: its printed figures, its replay config, the script it writes, and what cannot be replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.param.replaying import ReplayConfig, figures
from steelyard.errors import UsageError
from steelyard.model.record import Figure, Record
from steelyard.store.runs import Store, read_run
from tests.workloads.traces import recorded as made

pytestmark = pytest.mark.torch
GIVEN: dict[str, Any] = {"batch_size": 4, "debug": True}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    x = made.tensor(10, [8, 8])
    away = made.call(4, "far::away(Tensor x) -> Tensor", [x], [made.tensor(12, [8, 8])])
    return made.write(tmp_path / "rank-0.json", made.call(3, made.MM, [x, x], [made.tensor(11, [8, 8])]), away)


def test_the_figures_are_those_of_et_replay_with_the_right_units() -> None:
    facts = {"operators": 4, "replayed": 3, "shares": {"operators": 0.75}, "skipped": [{"count": 1, "operator": "a::b", "why": "not here"}]}
    record = Record("x", {}, "ok", metrics={"peak_memory": Figure(2**21, "B")}, effective={"replay": facts})
    told = figures(record, [0.001] * 9 + [0.011] * 11, GIVEN)
    assert told == [
        "Current QPS: 2000.00 (iterations 0 to 9)", "Current QPS: 363.64 (iterations 10 to 19)", "Replay time per iteration: 6.500 ms",
        "Replay QPS: 615.38", "Operator coverage: 3 / 4 = 0.7500", "  skipped 1 x a::b: not here", "p50: 11.000 ms", "p90: 11.000 ms",
        "p95: 11.000 ms", "Peak memory: 2.0 MiB",
    ]  # fmt: skip
    assert figures(Record("x", {}, "failed", reason="why"), [], GIVEN) == ["failed: why"]


def test_a_replay_config_is_read_strictly_and_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = ReplayConfig(("fbgemm_gpu",), {"aten::mm": "slow"})
    path.write_text(config.text())
    assert ReplayConfig.read(path) == config
    for bad in ("[]", '{"imports": []}', '{"import modules": "os"}', '{"skip nodes": {"a": 1}}', "{"):
        path.write_text(bad)
        with pytest.raises(UsageError):
            ReplayConfig.read(path)


def test_a_trace_is_replayed_with_its_figures(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trace-path", str(tmp_path), "--warmup-iter", "1", "--iter", "3", "--device-memory-threshold", "0.5"]
    assert main(["as", "param", "replay", *words]) == 0
    told = capsys.readouterr().out
    assert "Operator coverage: 1 / 2 = 0.5000" in told and "skipped 1 x far::away" in told
    [record] = next(read_run(info.path) for info in Store.find().runs()).records
    assert record.effective["replay"]["allocation"] == "lazy"


@pytest.mark.deep
def test_failures_are_written_down_and_the_script_runs_alone(trace: Path, tmp_path: Path) -> None:
    replay, config = ["as", "param", "replay", "--input", str(trace)], tmp_path / "config.json"
    assert main([*replay, "--replay-config", str(config), "--update-replay-config"]) == 0
    assert list(json.loads(config.read_text())["skip nodes"]) == ["far::away"]
    assert main([*replay, "-g", "--dump-path", str(tmp_path / "scripts" / "new")]) == 0
    run = [sys.executable, "-I", "benchmark.py", "--iterations", "2", "--warmup", "0"]
    alone = subprocess.run(run, cwd=tmp_path / "scripts" / "new", capture_output=True, text=True, check=True)
    assert "ms per iteration, median of 2" in alone.stdout


def test_flags_that_make_no_sense_are_refused(trace: Path, tmp_path: Path) -> None:
    assert main(["as", "param", "replay", "--input", str(trace), "--cpu", "--cuda", "0"]) == 2
    assert main(["as", "param", "replay"]) == 2
    assert main(["as", "param", "replay", "--trace-path", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--delay", "5"], "one process replays none"), (["--dump"], "--dump needs -g"), (["--et"], "--output-path"),
        (["--profile-replay"], "--output-path"),
        (["--et", "--output-path", ".", "-g"], "none is made"), (["--rows", "9"], "recorded size"), (["-s"], "all its calls"),
        (["--regenerate_tensors"], "made once"),
    ],
)  # fmt: skip
def test_flags_that_would_do_nothing_are_refused_with_the_reason(
    trace: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["as", "param", "replay", "--input", str(trace), *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.deep
def test_an_execution_trace_of_the_replay_has_its_operators(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from steelyard.traces.steps import read_trace

    words = ["--input", str(trace), "--warmup-iter", "1", "--iter", "2", "--et", "--profile-memory", "--output-path", str(tmp_path / "out")]
    assert main(["as", "param", "replay", *words]) == 0
    assert "aten::mm x 1 (" in (said := capsys.readouterr().out) and "Peak memory:" in said
    again = read_trace(tmp_path / "out" / "execution_trace" / "rank-0.json")
    assert [node.name for node in again.outermost] == ["aten::mm"]
