"""Input that was made to hurt: endless products, edited results, streams that fail, text that steers a terminal."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import BROKEN_PIPE, main
from steelyard.store.runs import Header, Store
from tests.report.made import softmax

MANY = ",".join(map(str, range(1, 1001)))
STEERS = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"


def workloads(*definitions: str) -> str:
    body = "def {0}(n, be):\n    return Task(lambda: n)\n"
    parts = [f"{line}\n{body.format(f'f{index}')}" for index, line in enumerate(definitions)]
    return "from steelyard import Task, workload\n" + "\n".join(parts)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestTooMuch:
    def test_a_product_that_cannot_end_is_counted_and_not_made(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        axes = [f"-a{axis}=[{MANY}]" for axis in "mnk"]
        assert main(["run", "op/matmul", *axes, "--dry-run"]) == 2
        assert "1 000 000 000 cases are too many" in capsys.readouterr().err

    def test_so_is_one_in_a_file_with_its_place(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("big.toml").write_text(f'[[matrix]]\nworkload = "op/matmul"\naxes = {{ m = [{MANY}], n = [{MANY}] }}\nthreads = [1, 2]\n')
        assert main(["run", "big.toml"]) == 2
        said = capsys.readouterr().err
        assert "big.toml  matrix[0]  " in said and "2 000 000 cases" in said

    def test_presets_and_matrices_add_up(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        part = f'[[matrix]]\nworkload = "op/softmax"\naxes = {{ m = [{MANY}], n = [{MANY[:171]}] }}\n'
        Path("two.toml").write_text(2 * part)
        assert main(["run", "two.toml"]) == 2
        assert "two.toml  matrix[1]  " in capsys.readouterr().err


class TestNames:
    @pytest.mark.parametrize(
        ("text", "places"),
        [
            (
                workloads('@workload("op/softmax", axes={"n": [1]})'),
                ["'op/softmax' is defined twice", "built in: ", "norm.py:", "mine.py:2"],
            ),
            (workloads(*['@workload("my/x", axes={"n": [1]})'] * 2), ["'my/x' is defined twice", "mine.py:2", "mine.py:6"]),
            ("from steelyard import variant\n@variant('compile')\ndef f(task):\n    return task\n", ["variant 'compile'", "mine.py:2"]),
        ],
    )
    def test_one_name_has_one_meaning(self, text: str, places: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("mine.py").write_text(text)
        assert main(["run", "mine.py", "--dry-run"]) == 2
        said = capsys.readouterr().err
        assert all(place in said for place in places), said

    def test_the_same_function_imported_again_is_the_same(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("mine.py").write_text(workloads('@workload("my/x", axes={"n": [1]})'))
        Path("more.py").write_text("from mine import f0\nfrom steelyard.workloads.ops.norm import softmax\n")
        assert main(["run", "mine.py", "more.py", "--dry-run"]) == 0
        assert "my/x[n=1]@torch/eager:eval" in capsys.readouterr().out

    @pytest.mark.parametrize("name", ["PYTHONHOME", "STEELYARD_SESSION"])
    def test_a_flag_that_would_stop_the_worker_is_refused(self, name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "fake/work", "--flag", f"{name}=/nowhere"]) == 2
        assert f"{name} cannot be a flag" in capsys.readouterr().err

    def test_a_flag_that_stops_it_nevertheless_costs_its_case_and_says_why(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "fake/work", "--flag", "PYTHONHASHSEED=abc"]) == 3
        assert "PYTHONHASHSEED must be" in capsys.readouterr().err

    def test_a_misspelt_file_is_named_with_its_line(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("mine.py").write_text("import os\n\ndef broken(:\n")
        assert main(["run", "mine.py"]) == 2
        assert "mine.py:3  could not load" in capsys.readouterr().err


@pytest.fixture
def edited(tmp_path: Path) -> Any:
    """A saved run whose lines a test may change before they are shown."""
    run = softmax()
    machine = {"cpu": {"model": "x", "virtual": "kvm"}, "cgroup": {"cpu_quota": 2.0}, "os": {"system": "L", "kernel": "6.1"}, "gpus": []}
    with Store(tmp_path).create(Header(id="k3f9", machine=machine)) as writer:
        for item in run.records[:2]:
            writer.append(item, {"block_time": ("s", "<f8", struct.pack("<2d", 0.1, 1e-5))})
        writer.append_pair(run.pairs[0])
        writer.seal()
    file = writer.path / "run.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    def put(path: tuple[str | int, ...], value: Any) -> None:
        changed: Any = copy.deepcopy(lines)
        at = changed
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        file.write_text("".join(json.dumps(line) + "\n" for line in changed))

    put.lines, put.file, put.store = lines, file, str(tmp_path)  # type: ignore[attr-defined]
    return put


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


class TestEditedResults:
    @pytest.mark.parametrize("bad", [None, STEERS, -1, 10**30, 1e308, True, [1], {"a": {"b": [None]}}], ids=repr)
    def test_whatever_stands_there_is_shown_or_refused(self, bad: Any, edited: Any) -> None:
        for path in [path for path in places(edited.lines) if len(path) > 1]:
            edited(path, bad)
            for words in (["show"], ["show", "latest/1"], ["show", "--json"], ["show", "--samples"]):
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = main([*words, "--store", edited.store])
                said = out.getvalue() + err.getvalue()
                assert code in (0, 2), (path, words, said)
                assert not set("\x1b\x07\x9b\u202e") & set(said), (path, words)

    @pytest.mark.parametrize("depth", [60, 400, 5000])
    def test_a_bottomless_line_is_left_out_and_named(self, depth: int, edited: Any, capsys: pytest.CaptureFixture[str]) -> None:
        edited((1, "record", "effective"), {"deep": "HERE"})
        edited.file.write_text(edited.file.read_text().replace('"HERE"', "[" * depth + "]" * depth))
        assert main(["show", "--store", edited.store]) == 0
        assert "run.jsonl:2 was skipped" in capsys.readouterr().err

    @pytest.mark.parametrize("words", [["show"], ["show", "k3f9"], ["list", "runs"]])
    def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
        self, words: list[str], edited: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        edited.file.unlink()
        os.mkfifo(edited.file)
        assert main([*words, "--store", edited.store]) in (0, 2)
        assert "bug" not in capsys.readouterr().err

    def test_a_header_that_is_wrong_is_named_with_its_line(self, edited: Any, capsys: pytest.CaptureFixture[str]) -> None:
        edited((0, "header", "machine", "cpu"), "a word")
        assert main(["show", str(edited.file.parent)]) == 2
        said = capsys.readouterr().err
        assert "run.jsonl:1  the run has no readable header" in said and "$.cpu" in said


def steelyard(words: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """A command line as a shell would run it, with its redirections."""
    return subprocess.run(["bash", "-c", f'"{sys.executable}" -m steelyard {words}'], cwd=folder, capture_output=True, timeout=120)


class TestStreams:
    @pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", ">&-", "0<&- >&- 2>&-"])
    def test_a_stream_that_is_closed_or_full_does_not_stop_a_run(self, where: str, tmp_path: Path) -> None:
        assert steelyard(f"run fake/work --store s {where}", tmp_path).returncode == 0
        assert main(["show", "--store", str(tmp_path / "s")]) == 0

    @pytest.mark.parametrize("words", ["list", "list --json", "--help", "run fake/work"])
    @pytest.mark.parametrize("buffered", ["", "1"])
    def test_a_full_output_is_told(self, words: str, buffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONUNBUFFERED", buffered)
        done = steelyard(f"{words} > /dev/full", tmp_path)
        assert done.returncode == 2 and b"error: cannot write to standard output\n  No space left" in done.stderr

    @pytest.mark.parametrize("words", ["list", "list --json", "list --help"])
    def test_a_reader_that_leaves_is_no_error(self, words: str, tmp_path: Path) -> None:
        done = steelyard(f"{words} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
        assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")

    def test_a_long_error_is_cut(self, tmp_path: Path) -> None:
        done = steelyard(f"run fake/work -a n{'x' * 5000}", tmp_path)
        assert done.returncode == 2 and len(done.stderr) < 1100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"reason = {json.dumps('a' + STEERS[:9])}", "exclude[0].reason: expected text without control characters"),
        ("workload = 3", "exclude[0].workload"),
    ],
)
def test_words_of_a_file_that_steer_are_refused(text: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.toml").write_text(f'[[matrix]]\nworkload = "fake/work"\n[[exclude]]\nmode = "eval"\n{text}\n')
    assert main(["run", "e.toml", "--dry-run"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mine.py", "e.toml"])
def test_a_pipe_is_not_waited_for(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(name)
    assert main(["run", name]) == 2
    assert "a pipe or a device" in capsys.readouterr().err


def test_a_program_that_takes_too_much_memory_is_out_of_memory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    greedy = "x = bytearray(b'1') * 600_000_000\nimport time\ntime.sleep(20)"
    assert main(["run", "--memory", "250MiB", "--", sys.executable, "-c", greedy]) == 3
    assert "✗ oom" in capsys.readouterr().out
