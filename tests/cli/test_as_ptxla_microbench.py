"""`steelyard as ptxla microbench` from the command line: real workers, small functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steelyard.cli.main import main

FUNCTIONS = """
import os
def short(): return sum(range(1000))
def long():
    for _ in range(4): found = sum(range(1000))
    return found
def wrong(): return 1
def broken(): raise RuntimeError("\\x1b]0;owned\\x07no way")
def die(): os._exit(3)
"""
QUICK = ["--warmup", "0", "--rep", "1", "--budget", "150ms"]


@pytest.fixture(autouse=True)
def inside(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(apart)


@pytest.fixture
def file(apart: Path) -> str:
    path = apart / "functions.py"
    path.write_text(FUNCTIONS)
    return str(path)


def microbench(*words: str) -> int:
    return main(["as", "ptxla", "microbench", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "two functions are needed"),
        (["functions.py", "functions.py:long"], "not a function in a file"),
        (["nowhere.py:a", "nowhere.py:b"], "no such file"),
        (["--matmul", "a.py:b"], "makes its own functions"),
        (["--matmul", "--sizes", "x"], "not sizes of matrices"),
        (["--matmul", "--accelerator", "gpu"], "no accelerator named 'gpu'"),
        (["--matmul", "--dtype", "f8"], "no number format of the sweep named 'f8'"),
        (["a.py:b", "a.py:c", "--rep", "nan"], "--rep must be a number of milliseconds"),
        (["a.py:b", "a.py:c", "--warmup", "inf"], "--warmup must be a number of milliseconds"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_starts(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench(*words) == 2
    assert said in capsys.readouterr().err


def test_the_originals_line_comes_first_and_the_verdict_below(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench(f"{file}:short", f"{file}:long", "--name", "sums", *QUICK) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("sums: speedup=0.")
    assert "; base=" in first and "\x1b" not in first
    assert second.startswith("  test: ") and "x slower [" in second and second.endswith("(against base)")


def test_a_confirmed_slowdown_is_an_exit_code_where_that_is_wanted(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench(f"{file}:short", f"{file}:long", "--strict-exit", "--json", *QUICK) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["test_name"], answer["verdict"]) == ("long", "slower")
    assert answer["baseline_wall_ms"] < answer["testing_wall_ms"]


@pytest.mark.parametrize(
    ("test", "code", "said"),
    [
        ("wrong", 3, "the answers differ"),
        ("broken", 3, "broken: RuntimeError: "),
        ("die", 3, "die: crashed: "),
        ("lnog", 2, "did you mean long"),
    ],
)
def test_what_fails_is_named(file: str, test: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench(f"{file}:short", f"{file}:{test}", *QUICK) == code
    out, err = capsys.readouterr()
    assert said in out + err
    assert "\x1b" not in out + err


@pytest.mark.torch
def test_the_sweep_compares_two_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--matmul", "--baseline", "eager", "--testing", "eager", "--sizes", "8,16", "--dtype", "bf16", "--no-verdict"]
    assert microbench(*words, *QUICK) == 0
    names = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["matmul-torch.bfloat16-lhs8x8-rhs8x8", "matmul-torch.bfloat16-lhs16x16-rhs16x16"]


@pytest.mark.torch
def test_a_stack_that_is_not_here_is_nothing_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench("--matmul", "--sizes", "8", *QUICK) == 5
    assert "steelyard env create torch-xla" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.deep
def test_a_slowdown_is_profiled_into_the_originals_folders(file: str, apart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert microbench(f"{file}:short", f"{file}:long", "--save-profile-to-dir", "profiles", "--no-verdict", "--json", *QUICK) == 0
    folders = [apart / "profiles" / "long" / role for role in ("baseline", "testing")]
    assert json.loads(capsys.readouterr().out)["profiles"] == list(map(str, folders))
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"flame.txt", "trace.json", "kernel.txt"}
        assert "functions.py" in (folder / "flame.txt").read_text()
        assert json.loads((folder / "trace.json").read_text())["traceEvents"]


@pytest.mark.torch
def test_a_sweep_is_a_run_in_the_store_with_a_verdict_for_each_product(apart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--matmul", "--baseline", "eager", "--testing", "inductor", "--sizes", "8,16", "--dtype", "f32", "--json"]
    assert microbench(*words, *QUICK) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["verdict"] for answer in answers] == ["slower", "slower"]
    assert main(["list", "runs", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
