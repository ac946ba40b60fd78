"""`steelyard check`: every file is told for what it is, with all its mistakes, and nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.engine import check
from steelyard.engine.check import ShapeCheck
from steelyard.engine.plan import Plan
from steelyard.errors import UsageError
from tests.engine.drive import run_json

SWEEP = """
[[matrix]]
workload = "op/softmax"
backend = ["numpy", "torch"]
axes = {n = [8, 16]}
[[exclude]]
backend = "torch"
[[exclude]]
backend = "jax"
"""
WRONG = """
[[matrix]]
workload = "op/sofmax"
[[matrix]]
workload = "op/sum"
variant = "compil"
axes = {nn = 3}
"""
BENCH = """
from steelyard import Task, workload

@workload("my/mm", axes={"k": [8, 9]})
def mm(k, be):
    import torch
    return Task(torch.matmul, (be.randn(4, k), be.randn(9, 5)))

@workload("my/die", backend="numpy")
def die(be):
    return Task(lambda: 1)
"""
PARAM = {
    name: {
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [{"input": [{"args": [{"type": "tensor", "dtype": "float", "shape": [4, n]} for n in (5, last)]} for last in sizes]}],
    }
    for name, sizes in (("torch.add", (5, 6)), ("torch.ad", (5,)))
}
RESULTS = {"version": "1.0", "benchmarks": [{"runs": [{"values": [0.1, 0.2]}], "metadata": {"name": "a"}}]}


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> dict[str, dict[str, Any]]:
    assert main(["check", "--json", *words]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    return {item["file"]: item for item in found["files"]}


def test_all_mistakes_of_all_files_are_told(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "sweep.toml": SWEEP, "wrong.toml": WRONG, "policy.toml": '[margins]\ntime = "3%"\n', "bad.toml": "[margins]\ntime = 7\nfoo = -1\n",
        "broken.yaml": "matrix: [\n", "odd.json": "{}", "sweep.json": '{"matrix":[{"workload":"op/sum"}]}',
        "expect.toml": '[[expect]]\ncase = "op/*"\nstatus = "oom"\n',
    }.items():  # fmt: skip
        (inside / name).write_text(text)
    (inside / "pyperf.json").write_text(json.dumps(RESULTS))
    names = ("sweep.toml", "wrong.toml", "policy.toml", "bad.toml", "broken.yaml", "odd.json", "sweep.json", "expect.toml", "pyperf.json")
    found = checked(capsys, *names, "nosuch.toml", code=2)
    assert {name: (item["kind"], len(item["mistakes"])) for name, item in found.items()} == {
        "sweep.toml": ("experiment", 0), "wrong.toml": ("experiment", 3), "policy.toml": ("gate policy", 0), "bad.toml": ("gate policy", 2),
        "broken.yaml": ("experiment", 1), "odd.json": ("results", 1), "expect.toml": ("expected failures", 0),
        "pyperf.json": ("results", 0), "sweep.json": ("experiment", 0), "nosuch.toml": ("", 1),
    }  # fmt: skip
    assert (found["sweep.toml"]["cases"], found["sweep.toml"]["dropped"]) == (2, {"backend=torch": 2})
    assert found["sweep.toml"]["notes"] == ["fits no case: rule backend=jax"]
    assert found["sweep.toml"]["shapes"] == {"fit": 0, "wrong": [], "unchecked": {"backend numpy has no tensors without data": 2}}
    told = found["wrong.toml"]["mistakes"]
    assert all(any(near in line for line in told) for near in ("op/softmax", "did you mean compile", "no axis named 'nn'"))
    assert all(line.startswith("wrong.toml  matrix[") for line in told)


def test_a_users_file_is_called_without_data_and_says_which_case_does_not_fit(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inside / "bench.py").write_text(BENCH)
    assert main(["check", "bench.py"]) == 2
    out = capsys.readouterr().out
    assert "✗ bench.py workloads · 2 cases would run · 1 mistake" in out
    assert "my/mm[k=8]@torch/eager:eval: RuntimeError: " in out and "[4, 8] X [9, 5]" in out
    assert "shapes of 1 case fit" in out and "shapes of 1 case not checked: backend numpy" in out
    assert not (inside / ".steelyard").exists()


def test_param_configs_are_tried_by_check_dry_run_and_convert_alike(
    inside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside / "calls.json").write_text(json.dumps(PARAM))
    found: list[ShapeCheck] = []

    def once(ready: Plan) -> ShapeCheck:
        found.extend([] if found else [real(ready)])
        return found[0]

    real = check.try_shapes
    monkeypatch.setattr(check, "try_shapes", once)
    assert main(["check", "calls.json"]) == 2
    told = capsys.readouterr().out
    assert "PARAM config · 1 case would run · 2 mistakes" in told
    for wrong in ("broadcast", "no operator named 'torch.ad'"):
        assert wrong in told
    assert main(["run", "calls.json", "--dry-run"]) == 3
    shown = capsys.readouterr().err
    assert "1 case would run, 2 cannot" in shown and "broadcast" in shown
    assert main(["convert", "calls.json", "-o", "calls.toml"]) == 3
    made = capsys.readouterr().err
    assert "1 config · saved calls.toml" in made and "no operator named 'torch.ad'" in made
    assert (inside / "calls.toml").read_text().count("torch.ad") == (inside / "calls.toml").read_text().count("torch.add") == 1


def test_a_saved_run_is_read(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_json("fake/work", "--runs", "2", cwd=inside)["path"]
    (item,) = checked(capsys, path, code=0).values()
    assert (item["kind"], item["notes"]) == ("run", ["1 records", "0 pairs", "sealed (complete)"])
    lines = (Path(path) / "run.jsonl").read_text().splitlines()
    (Path(path) / "run.jsonl").write_text("\n".join([lines[0], "{oh no", *lines[1:]]) + "\n")
    assert checked(capsys, f"{path}/run.jsonl", code=2)


def test_a_case_that_takes_the_worker_with_it_is_not_known_and_the_rest_are(inside: Path) -> None:
    dying = BENCH.replace("import torch\n", "import os\n    if k == 8: os._exit(7)\n    import torch\n")
    (inside / "bench.py").write_text(dying)
    found = check.check_file("bench.py", check.Store.find())
    assert found.shapes is not None and found.shapes.wrong == ()
    assert (found.shapes.fit, found.shapes.unchecked) == (
        1, {"the process that tried it ended": 1, "backend numpy has no tensors without data": 1},
    )  # fmt: skip


def test_no_shapes_asks_no_worker_for_them(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inside / "sweep.toml").write_text(SWEEP)
    assert checked(capsys, "--no-shapes", "sweep.toml", code=0)["sweep.toml"]["shapes"] is None


@pytest.mark.parametrize("ending", ["", ".toml", ".json", ".py"])
@pytest.mark.parametrize(("name", "why"), [("x" * 300, "File name too long"), ("a\0b", "embedded null byte")])
def test_a_name_that_no_file_can_have_is_a_mistake_of_the_user(
    name: str, why: str, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{name}{ending}"]) == 2
    assert why in capsys.readouterr().out


def test_a_folder_that_may_not_be_entered_is_told_as_any_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Path, **how: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(UsageError, match=r"cannot read 'closed/a.toml'") as found:
        check.kind_of(Path("closed/a.toml"))
    assert found.value.why == "Permission denied"
