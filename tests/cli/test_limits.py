"""Files and words made to exhaust: each ends in a message and exit code 2, in bounded memory, and never in a bug of ours."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.model.record import Figure
from steelyard.store.index import Index
from steelyard.store.runs import Header, Store, read_run
from tests.store.made import record

MATRIX = '[[matrix]]\nworkload = "op/softmax"\n'
HUGE = 3 * 2**30
FEW_HUNDRED_MB = 400 * 2**20


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(id: str, seconds: float = 1e-3, *, seal: bool = True) -> Path:
    time = Figure(seconds, "s", "lower", seconds * 0.99, seconds * 1.01, 30)
    with Store.find().create(Header(id=id, machine_key="k")) as writer:
        writer.append(record(1, metrics={"time": time}))
        if seal:
            writer.seal()
    return writer.path


FILES: list[tuple[str, str, str]] = [
    ("x.yaml", "name: !!timestamp x\n", "x.yaml:1  not valid YAML"),
    ("x.toml", f'files = ["{"a" * 300}.py"]\n{MATRIX}', "files: no file can have this name"),
    ("x.toml", f"{MATRIX}axes = {{n = 0x{'f' * 5000}}}\n", "matrix[0].axes.n: a number of more than 300 digits"),
    ("x.toml", f"{MATRIX}axes = {{size = {{a = 1}}}}\n", "no size of op/softmax named"),
    ("x.toml", f"{MATRIX}axes = {{size = [[1]]}}\n", "no size of op/softmax named"),
    ("x.toml", f"{MATRIX}threads = {2**70}\n", "expected a whole number"),
    ("x.toml", f"{MATRIX}#{'x' * (4 << 20)}\n", "set STEELYARD_MAX_FILE=5MiB"),
    ("x.json", "[" * 5000, "x.json  nested"),
]


@pytest.mark.parametrize(("name", "text", "said"), FILES, ids=[said for _, _, said in FILES])
def test_a_file_that_exhausts_is_refused(name: str, text: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / name).write_text(text)
    assert main(["run", name, "--dry-run"]) == 2
    assert said in capsys.readouterr().err


WORDS: list[tuple[list[str], str]] = [
    (["run", "op/softmax", "-a", f"n={'[' * 1000}", "--dry-run"], "axis n of op/softmax takes a number"),
    (["run", f"op/softmax[n={'[' * 1000}]@torch/eager:eval"], "lists at most 20 deep"),
    (["run", "op/softmax", "--threads", "9" * 5000], "--threads takes whole numbers from 1"),
    (["run", "op/softmax", "--compile-time", "9" * 5000], "--compile-time takes a whole number"),
    (["run", "op/softmax", "--runs", "9" * 30], "--runs"),
    (["run", "op/softmax", "--vs-path", "~nosuch/x"], "there is no home folder for ~nosuch"),
    (["nightly", "quickstart", "--keep", "~nosuch/x"], "there is no home folder for ~nosuch"),
    (["list", "runs", "--store", "~nosuch/x"], "there is no home folder for ~nosuch"),
    (["compare", "~nosuchuser", "x"], "no run named '~nosuchuser'"),
    (["show", "~nosuch/x"], "no run or workload named '~nosuch/x'"),
    (["report", "~nosuch/x"], "no run named '~nosuch/x'"),
    (["compare", "a", "b", "--alpha", "1e-17"], "1e-17 is not in the range"),
    (["show", "a" * 5000], "no run"),
]


@pytest.mark.parametrize(("words", "said"), WORDS, ids=[said for _, said in WORDS])
def test_a_word_that_exhausts_is_refused_in_few_words(words: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told and max(map(len, told.splitlines())) < 1100


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x.toml"],
        ["run", "x.yaml"],
        ["run", "x.py"],
        ["run", "x.json"],
        ["convert", "x.json"],
        ["run", "op/softmax", "--expect", "x.toml"],
        ["gate", "a", "b", "--policy", "x.toml"],
        ["as", "param", "--config", "x.json"],
        ["as", "ptxla", "runner", "--suite-name=dummy", "--accelerator=cpu", "--dry-run", "--policy", "x.yaml"],
        ["show", "x.json"],
        ["compare", "x.json", "x.json"],
    ],
    ids=" ".join,
)
def test_a_pipe_is_never_waited_for(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for end in ("toml", "yaml", "py", "json"):
        os.mkfifo(here / f"x.{end}")
    assert main(words) == 2
    assert "bug" not in capsys.readouterr().err


def test_nor_is_one_in_the_place_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved("aaaa")
    (folder / "run.jsonl").unlink()
    os.mkfifo(folder / "run.jsonl")
    assert main(["list", "runs"]) == 0
    assert "it is a pipe or a device" in capsys.readouterr().out
    assert main(["compare", "abcdef", "aaaa"]) == 2


@pytest.mark.parametrize("seconds", [1e308, 1e-320, 1e15, 5e-324])
def test_a_time_that_cannot_be_breaks_no_page(seconds: float, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for id, time in (("aaaa", 1e-3), ("bbbb", seconds), ("cccc", seconds * 1.7)):
        saved(id, time)
    for words in (["show", "cccc/1", "--history"], ["show", "cccc"], ["show", "cccc/1"], ["list", "runs"]):
        assert main(words) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 100
    for words in (["compare", "aaaa", "cccc"], ["gate", "bbbb", "cccc"], ["report", "aaaa", "cccc", "-o", "r.html", "-o", "r.csv"]):
        assert main(words) != 1


class TestHuge:
    """A run file of 3 GiB, which takes no room on the disk: a header, a record, and a hole."""

    def made(self, *, seal: bool) -> Path:
        folder = saved("huge", seal=False)
        with (folder / "run.jsonl").open("r+b") as file:
            line = b'\n{"seal":{"time":"2026-01-02T03:04:05Z","records":1,"counts":{"ok":1}}}\n' if seal else b""
            file.truncate(HUGE)
            file.seek(HUGE - len(line))
            file.write(line)
        return folder

    @pytest.mark.parametrize("seal", [False, True])
    def test_runs_beside_it_are_listed_in_bounded_memory(self, seal: bool, here: Path) -> None:
        self.made(seal=seal)
        saved("good")
        done = subprocess.run(
            [sys.executable, "-m", "steelyard", "list", "runs"], capture_output=True, text=True, timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (FEW_HUNDRED_MB, FEW_HUNDRED_MB)),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "good" in done.stdout and "huge" in done.stdout
        assert ("STEELYARD_MAX_FILE=3072MiB" in " ".join(done.stdout.split())) is not seal

    def test_reading_it_says_how_it_could_be_read(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.made(seal=False)
        for words in (["show", "huge"], ["compare", "huge", "latest"], ["gate", "huge"]):
            assert main(words) == 2
            assert "3.0 GiB, and at most 256 MiB are read" in capsys.readouterr().err

    def test_the_index_leaves_it_out(self, here: Path) -> None:
        folder, store = self.made(seal=False), Store.find()
        run = read_run(saved("good"))
        with Index(store) as index:
            index.refresh()
            assert [entry.run for entry in index.series(run.records[0].id)] == ["good"]
        assert folder in store.folders()


def test_a_limit_can_be_lowered_for_runs_too(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved("aaaa")
    monkeypatch.setenv("STEELYARD_MAX_FILE", "100")
    assert main(["show", "aaaa"]) == 2
    assert "too large" in capsys.readouterr().err
    monkeypatch.setenv("STEELYARD_MAX_FILE", "1GiB")
    assert read_run(folder).id == "aaaa"
