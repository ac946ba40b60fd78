"""Bad input is refused with what, why and what to do, with the right exit code, before anything is timed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.cli.main import main

BAD_WORDS: list[tuple[list[str], int, str]] = [
    (["run"], 2, "nothing named to run"),
    (["run", "op/sofmax"], 2, "did you mean op/softmax"),
    (["run", "zz/*"], 2, "no workload named 'zz/*'"),
    (["run", "tag:smok"], 2, "did you mean smoke?"),
    (["run", "op/softmax", "-a", "nn=4"], 2, "no axis named 'nn'"),
    (["run", "op/softmax", "-a", "n"], 2, "not an axis: 'n'"),
    (["run", "op/softmax", "-a", "n=9..1:1"], 2, "a range from 9 to 1 is empty"),
    (["run", "op/softmax", "-a", "n=1..9:x1"], 2, "a range must grow"),
    (["run", "op/softmax", "-a", "m,n=8", "-a", "n=9"], 2, "axis n is given alone and with others"),
    (["run", "op/softmax", "-a", "m,,n=8"], 2, "not an axis"),
    (["run", "op/softmax", "-a", "n=[]"], 2, "axis n has no values"),
    (["run", "op/softmax", "-a", "n=abc"], 2, "takes a number, not 'abc'"),
    (["run", "op/softmax", "-a", "n=1.5"], 2, "takes a whole number"),
    (["run", "op/softmax", "-a", "size=huge"], 2, "no size of op/softmax named 'huge'"),
    (["run", "op/softmax", "-a", "dtype=bf17"], 2, "did you mean bf16"),
    (["run", "op/softmax", "-V", "compil"], 2, "did you mean compile?"),
    (["run", "op/softmax", "-V", "compile[mod=x]"], 2, "did you mean mode?"),
    (["run", "op/softmax", "-V", "compile[mode=fast]"], 2, "no mode of variant compile named 'fast'"),
    (["run", "op/softmax", "--vs", "eagre"], 2, "did you mean eager"),
    (["run", "op/softmax", "-B", "toch"], 2, "did you mean torch"),
    (["run", "op/softmax", "-d", "gpu"], 2, "no device named 'gpu'"),
    (["run", "op/softmax", "--mode", "trian"], 2, "did you mean train?"),
    (["run", "op/softmax", "--threads", "0"], 2, "whole numbers from 1"),
    (["run", "op/softmax", "--flag", "X"], 2, "not a flag: 'X'"),
    (["run", "op/softmax", "--budget", "soon"], 2, "not a time"),
    (["run", "op/softmax", "--precision", "7"], 2, "between 0 and 100 %"),
    (["run", "op/softmax", "--rtol", "nan"], 2, "rtol is nan, not a tolerance"),
    (["run", "op/softmax", "--atol", "inf"], 2, "invalid value for '--atol'"),
    (["run", "op/softmax", "--memory", "lots"], 2, "not a size"),
    (["run", "op/softmax", "--memory", "0"], 2, "must be more than 0"),
    (["run", "op/softmax", "--env", "nowhere"], 2, "no environment named 'nowhere'"),
    (["run", "op/softmax", "--env", ""], 2, "--env is empty"),
    (["run", "op/softmax", "--partition", ""], 2, "--partition is empty"),
    (["nightly", "quickstart", "--keep", "nights", "--on", ""], 2, "--on is empty"),
    (["run", "op/softmax", "--partition", "6/5"], 2, "not a part: '6/5'"),
    (["run", "op/softmax", "--partition", "0/0"], 2, "not a part: '0/0'"),
    (["run", "op/softmax", "-k", "("], 2, "--filter '(' cannot be read"),
    (["run", "op/softmax", "--expect", ""], 2, "cannot read"),
    (["run", "op/softmax", "--retry", "often"], 2, "no outcome to retry named 'often'"),
    (["run", "op/softmax", "--resume", "zzzz"], 2, "no run named 'zzzz'"),
    (["run", "op/softmax", "--budgt", "3"], 2, "did you mean --budget"),
    (["run", "op/softmax[n=64]@torch/eager"], 2, "expected ':mode'"),
    (["run", "op/softmax[n=64]@torch/eager:eval:thread=2"], 2, "expected device=NAME"),
    (["run", "missing.py"], 2, "cannot read"),
    (["run", "missing.toml"], 2, "no such file"),
    (["run", "--", "true", "--"], 2, "an empty command"),
    (["show", "zzzz"], 2, "no run"),
    (["env", "create", "fortran"], 2, "no stack named 'fortran'"),
    (["env", "remove", "nowhere"], 2, "no environment named 'nowhere'"),
    (["list", "op/sofmax"], 2, "op/softmax"),
    (["new", "workflow", "x"], 2, "workload"),
    (["frobnicate"], 2, "no command named 'frobnicate'"),
]


@pytest.mark.parametrize(("words", "code", "message"), BAD_WORDS, ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_wrong_words(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") or "\nerror: " in captured.err
    assert message in captured.err
    assert captured.out == ""
    assert not list(tmp_path.glob(".steelyard/runs/*/run.jsonl"))


BAD_FILES: list[tuple[str, str, str]] = [
    ("unknown.toml", '[[matrix]]\nworkload = "op/softmax"\nvarient = ["eager"]\n', "unknown.toml:3  matrix[0].varient: unknown key"),
    ("axis.toml", '[[matrix]]\nworkload = "op/softmax"\naxes = { dtpye = "fp32" }\n', "axis.toml  matrix[0].axes  no axis named 'dtpye'"),
    ("name.toml", '[[matrix]]\nworkload = "op/sofmax"\n', "name.toml  matrix[0]  no workload named 'op/sofmax'"),
    ("device.toml", '[[matrix]]\nworkload = "op/sum"\ndevice = "gpu"\n', "matrix[0].device: no device named 'gpu'\n  did you mean cuda?"),
    ("bidi.toml", 'name = "\u202e"\n[[matrix]]\nworkload = "op/sum"\n', 'name: expected text without control characters, not "\ufffd"'),
    ("type.toml", '[settings]\nseed = "one"\n[[matrix]]\nworkload = "op/sum"\n', "settings.seed"),
    ("empty.toml", "", "the file is empty"),
    ("broken.toml", "[[matrix\n", "broken.toml:1"),
    ("broken.yaml", "matrix: [\n", "broken.yaml"),
    ("bomb.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "bomb.yaml:2  aliases are not supported"),
    ("binary.toml", "\x00\x01", "binary.toml"),
    ("all-out.toml", '[[matrix]]\nworkload = "op/sum"\n[[exclude]]\nworkload = "op/*"\n', "nothing to measure"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_FILES, ids=[name for name, _, _ in BAD_FILES])
def test_wrong_files(
    name: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    assert main(["run", name]) == (5 if name == "all-out.toml" else 2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import os\nos._exit(3)\n", "the process ended while importing it"),
        ("from steelyard import workload\n@workload('x', axes={'n': [1]})\ndef x(be): ...\n", "axis 'n' is not an argument"),
        ("x = 1\n", "nothing to measure"),
    ],
)  # fmt: skip
def test_wrong_python_files(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    assert main(["run", "mine.py"]) in (2, 5)
    assert message in capsys.readouterr().err


def test_a_store_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("not a folder")
    assert main(["run", "fake/work", "--store", str(tmp_path / "taken" / "below")]) == 2
    assert "--store DIR" in capsys.readouterr().err


def test_a_full_disk_stops_the_run_and_keeps_what_was_saved(tmp_path: Path) -> None:
    axis = f"seconds=[{','.join(f'{n}e-6' for n in range(1, 40))}]"
    limited = f"ulimit -f 40; exec {shlex.quote(sys.executable)} -m steelyard run fake/work -a {shlex.quote(axis)}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130, done.stderr
    assert "error: " in done.stderr and "Traceback" not in done.stderr
    shown = subprocess.run([sys.executable, "-m", "steelyard", "show", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert 0 < len(json.loads(shown.stdout)["records"]) < 39


def test_an_absent_device_is_unsupported_not_a_typing_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "op/sum", "-B", "numpy", "-d", "cuda"]) == 5
    assert "unsupported" in capsys.readouterr().out
