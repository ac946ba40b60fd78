"""Every scaffold runs as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard import registry
from steelyard.backends.numpy import BACKEND
from steelyard.cli import new
from steelyard.cli.main import main
from steelyard.codec import load_experiment


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_torch(name: str) -> None:
    return None


@pytest.mark.parametrize("folder", [".", "", "sub"])
def test_a_folder_gets_the_usual_file(folder: str, here: Path) -> None:
    (here / "sub").mkdir()
    assert main(["new", "workload", "my/gelu", "-o", folder]) == 0
    assert (here / folder / "gelu.py").is_file()


@pytest.mark.parametrize("kind", ["workload", "variant", "metric"])
def test_the_file_defines_what_was_asked_for(kind: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new, "find_spec", without_torch)
    assert main(["new", kind, "mine"]) == 0
    found = registry.Loaded().add(registry.load_file(here / "mine.py"))
    assert "mine" in getattr(found, f"{kind}s")
    workload = next(iter(found.workloads.values()))
    be = BACKEND("cpu")
    task = workload.bodies["numpy"](**{key: values[0] for key, values in workload.axes.items()}, be=be)
    if kind == "variant":
        changed = found.variants["mine"](task, be, {})
        assert (changed() == task()).all()
    if kind == "metric":
        assert found.metrics["mine"].compute(2.0, task) == 128.0
    assert be.outputs(task())[0].data.size


def test_the_experiment_names_what_there_is(here: Path) -> None:
    assert main(["new", "experiment", "nightly"]) == 0
    experiment = load_experiment(here / "nightly.toml")
    assert experiment.name == "nightly"
    assert set(experiment.matrix[0].workload) <= set(registry.catalogue().workloads)


def test_the_command_to_run_next_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["new", "workload", "my/gelu"])
    main(["new", "variant", "twice", "-o", "other name.py"])
    assert capsys.readouterr().out.splitlines() == [
        "wrote gelu.py",
        "next: steelyard run gelu.py",
        "wrote other name.py",
        "next: steelyard run 'other name.py' -V eager,twice --vs eager",
    ]


@pytest.mark.parametrize("kind", ["workload", "variant", "metric", "experiment"])
def test_the_printed_command_works(kind: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new, "find_spec", without_torch)
    main(["new", kind, "mine"])
    line = capsys.readouterr().out.splitlines()[1].removeprefix("next: steelyard ").split()
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", *line, "--budget", "20ms"],
        capture_output=True,
        text=True,
        env={**os.environ, "CI": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " ok · saved " in done.stdout


def test_a_file_that_exists_is_never_touched(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.py").write_text("precious")
    assert main(["new", "workload", "mine"]) == 2
    assert (here / "mine.py").read_text() == "precious"
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", 'a"b', "a b", "-", "a/", "a\nb"])
def test_names_cannot_leave_the_folder_or_the_string(name: str, here: Path) -> None:
    assert main(["new", "workload", "--", name]) == 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(("args", "word"), [(["-o", "x.txt"], "-o x.py"), (["-o", "none/x.py"], "cannot write")])
def test_output_files_are_checked(args: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "workload", "mine", *args]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "stem", "ident"),
    [
        ("torch", "torch_bench", "torch_"),
        ("a/class", "class", "class_"),
        ("2d-conv", "2d_conv", "_2d_conv"),
        ("json", "json_bench", "json"),
    ],
)
def test_no_import_mistakes_the_file_for_its_own(name: str, stem: str, ident: str) -> None:
    assert (new.file_stem(name), new.identifier(name)) == (stem, ident)
