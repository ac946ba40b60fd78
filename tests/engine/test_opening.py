"""Workloads that are a file: the selector, the identity by content, and the check that the content is still that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.engine import opening
from steelyard.model.case import Case
from steelyard.model.values import file_value, render, value_text

OWN = '''
from pathlib import Path
from steelyard import Task, workload

@workload("words", axes={"times": [1]}, backend="numpy", opens="path")
def words(path, times, be):
    """Count the words of a file."""
    text = Path(path).read_text()
    return Task(lambda: be.array(__import__("numpy").asarray([float(len(text.split()) * times)]), "fp32"))
'''


Told = pytest.CaptureFixture[str]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "a=b@c.json").write_text("one two")
    return tmp_path


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("artifact:a/b.mlir", ("artifact", "a/b.mlir")), ("artifact:https://host/x?y=1@2", ("artifact", "https://host/x?y=1@2")),
        ("trace:t.json", ("trace", "t.json")), ("tag:smoke", None), ("tier:1", None), ("op/softmax@torch/eager:eval", None),
        ("op/x[path=\"a:b\"]@torch/eager:eval", None), ("https://host/x.toml", None), ("op/softmax", None), ("artifact:", ("artifact", "")),
    ],
)  # fmt: skip
def test_selectors_that_open_a_file(word: str, meant: tuple[str, str] | None) -> None:
    assert opening.split(word) == meant


def test_identity_is_the_content(tmp_path: Path) -> None:
    one = file_value("/a/x.mlir", "ab" * 32, name="x")
    assert render(one) == render(file_value("/b/y.mlir", "ab" * 32)) == "#abababababab"
    assert render(file_value("/a/x.mlir", "cd" * 32)) != render(one)
    assert value_text(one) == "x#ababab"
    case = Case("artifact", (("path", one),), backend="fake")
    assert Case.parse(case.id).id == case.id
    assert Case.from_plain(json.loads(json.dumps(case.plain()))).id == case.id


def told(capsys: Told, *words: str, code: int = 0) -> str:
    """What a command says, with the exit code that it should end with."""
    ended = main(list(words))
    out, err = capsys.readouterr()
    assert ended == code, out + err
    return out if code == 0 else out + err


def test_a_file_of_a_users_workload_is_measured_and_told_by_content(own: Path, capsys: Told) -> None:
    data, moved = own / "a=b@c.json", own / "moved.json"
    run = ["run", str(own / "own.py"), "--budget", "0.05s", "--json"]
    first = json.loads(told(capsys, *run, f"words:{data}"))["records"][0]
    assert (first["status"], first["case"]["params"]["path"]["name"]) == ("ok", data.name)
    data.rename(moved)
    assert json.loads(told(capsys, *run, f"words:{moved}", "--dry-run"))["cases"] == [first["id"]]
    assert "no such file" in told(capsys, *run, first["id"], code=2)
    moved.rename(data)
    assert json.loads(told(capsys, *run, first["id"], "--dry-run"))["cases"] == [first["id"]]
    data.write_text("one two three")
    assert "has changed" in told(capsys, *run, first["id"], code=2)


def test_a_file_in_an_experiment_and_in_a_typed_id(own: Path, capsys: Told) -> None:
    data = (own / "a=b@c.json").rename(own / "data.txt")
    (own / "exp.toml").write_text(f'[[matrix]]\nworkload = "words:{data}"\naxes = {{times = [1, 2]}}\n')
    found = json.loads(told(capsys, "run", str(own / "own.py"), str(own / "exp.toml"), "--dry-run", "--json"))
    assert len(set(found["cases"])) == 2
    typed = f'words[path="{data}"]@numpy/eager:eval'
    one = json.loads(told(capsys, "run", str(own / "own.py"), typed, "--dry-run", "--json"))
    assert one["cases"][0] in found["cases"]


def test_what_is_wrong_with_a_selector(own: Path, capsys: Told) -> None:
    assert "no such file" in told(capsys, "run", str(own / "own.py"), "words:nowhere.txt", code=2)
    assert "does not open files" in told(capsys, "run", "op/softmax:x.txt", code=2)
    assert "artifact: names no file" in told(capsys, "run", "artifact:", code=2)
    assert "no workload named 'wrods'" in told(capsys, "run", "wrods:x.txt", code=2)
    assert "cannot open" in told(capsys, "run", str(own / "own.py"), "words:https://host/x", code=2)
    assert "needs a file" in told(capsys, "run", str(own / "own.py"), "words", code=2)
