"""Traces recorded here: in a `with` block, of a case, of steps of a script, and of several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import steelyard
from steelyard.cli.main import main
from steelyard.traces.calls import unique_calls
from steelyard.traces.steps import read_trace
from steelyard.traces.summary import summarise

SCRIPT = """
import sys
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for size in (1, 2, 3, 4):
    optimizer.zero_grad()
    model(torch.ones(size, 4)).sum().backward()
    optimizer.step()
"""
RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def test_a_block_is_recorded_with_ranges_and_its_environment(tmp_path: Path) -> None:
    table = torch.nn.Embedding(10, 4)
    with steelyard.capture(tmp_path / "t.json") as steps:
        for _ in range(2):
            steps.step()
            table(torch.tensor([1, 7, 3]))
            assert torch.autograd.profiler._is_profiler_enabled, "compiled code tells of its kernels only then"
    assert not torch.autograd.profiler._is_profiler_enabled
    trace = read_trace(tmp_path / "t.json", step=1)
    (lookup,) = [node for node in trace.outermost if node.name == "aten::embedding"]
    assert lookup.tensor_ranges[1] == (1, 7)
    (call,) = unique_calls([lookup])
    assert call.spec is not None
    assert call.spec["args"][1]["distribution"] == {"name": "integers", "low": 1, "high": 8}
    assert trace.resources is not None
    assert list(trace.resources.glob("nid_*_tid_1.dat"))
    noted = json.loads((tmp_path / "t.environment.json").read_text())
    assert (noted["steps"], noted["rank"], noted["machine"]["packages"]["torch"]) == (2, 0, torch.__version__)


def test_a_case_is_recorded_with_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mlp.json.gz"
    words = ["--case", "model/mlp", "-a", "batch=2", "-a", "hidden=16", "--mode", "train", "--profile", "--json", "-o", str(path)]
    assert main(["capture", *words]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said["trace"] == str(path) and said["step_seconds"] > 0
    trace = read_trace(path)
    assert trace.label == "ProfilerStep#0"
    assert {"aten::linear", "aten::mm", "aten::add_"} <= {node.name for node in trace.outermost}
    assert all(node.time for node in trace.outermost)
    assert all(call.spec is not None for call in unique_calls(trace.outermost))


@pytest.mark.deep
def test_steps_of_a_script_are_recorded(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "t.json"
    script.write_text(SCRIPT)
    assert main(["capture", "-o", str(path), "--steps", "1:3", str(script), "0.5"]) == 0
    assert [step.label for step in summarise(path).steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    sizes = [next(node for node in read_trace(path, step).outermost if node.name == "aten::ones") for step in (0, 1)]
    assert [node.inputs[0].value[0].value for node in sizes] == [2, 3]


@pytest.mark.deep
def test_what_compiles_while_it_is_recorded_leaves_its_calls_and_no_others(tmp_path: Path) -> None:
    script, path = tmp_path / "compiled.py", tmp_path / "t.json"
    script.write_text("import torch\nstep = torch.compile(lambda x: (x.reshape(8, 8) @ x.reshape(8, 8)).relu())\nstep(torch.ones(64))\n")
    assert main(["capture", "-o", str(path), str(script)]) == 0
    assert {node.name for node in read_trace(path).outermost} == {"aten::ones", "aten::mm"}


@pytest.mark.deep
def test_steps_that_a_script_does_not_make_and_errors_in_it_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, path = tmp_path / "train.py", tmp_path / "t.json"
    script.write_text(SCRIPT)
    assert main(["capture", "-o", str(path), "--steps", "9", str(script), "0.5"]) == 2
    assert "the script made 4 steps" in capsys.readouterr().err
    assert main(["capture", "-o", str(path), str(script)]) == 2
    assert "IndexError" in capsys.readouterr().err
    script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert main(["capture", "-o", str(path), str(script)]) == 2
    assert "ended by SIGKILL" in (said := capsys.readouterr().err) and said.count("\n") == 1
    script.write_text("print(1)\n")
    assert main(["capture", "-o", str(path), str(script)]) == 5
    assert "no operator was recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name either a script or a case"), (["--case", "model/*"], "cases are selected"),
        (["--steps", "3:2", "x.py"], "not a step or a range"),
        (["nowhere.py"], "there is no such file"), (["--case", "model/mlp", "--ranks", "2"], "are for scripts"),
        (["--mode", "train", "x.py"], "are for cases"), (["--ranks", "2", "-o", "t.json", "x.py"], "name a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_told_first(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.deep
def test_each_rank_records_its_own(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    assert main(["capture", "-o", str(tmp_path / "out"), "--ranks", "2", str(script)]) == 0
    assert [json.loads((tmp_path / "out" / f"rank-{rank}.environment.json").read_text())["rank"] for rank in (0, 1)] == [0, 1]
    assert {node.name for node in read_trace(tmp_path / "out" / "rank-1.json").nodes} & {"c10d::allreduce_", "record_param_comms"}
