"""Files that commands write are whole or not there, and a full disk says what was saved."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.cli.output import save
from steelyard.errors import UsageError
from steelyard.store.runs import Store
from tests.analyze.saved import case
from tests.analyze.saved import save as keep


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """A disk on which no file gets larger than this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, "what was there"])
def test_a_full_disk_leaves_a_file_as_it_was(tmp_path: Path, before: str | None) -> None:
    file = tmp_path / "verdict.json"
    if before:
        file.write_text(before, encoding="utf-8")
    with full_beyond(100), pytest.raises(UsageError, match="File too large"):
        save(file, "x" * 1000)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ([before] if before else [])


def test_links_are_followed_and_pipes_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    save(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"x"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    save(tmp_path / "pipe", "y")
    assert os.read(reader, 10) == b"y" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_gate_on_a_full_disk_leaves_no_empty_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store")
    runs = [keep(store, {case("a"): 1e-3}) for _ in range(2)]
    for option in ("-o", "--markdown"):
        with full_beyond(100):
            assert main(["gate", *runs, "--store", str(store.root), "--no-summary", option, str(tmp_path / "out")]) == 2
        assert "cannot write" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_full_disk_says_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "fake/work", "-a", "seconds=[1e-3,2e-3,3e-3,4e-3,5e-3,6e-3,7e-3,8e-3]", "--budget", "20ms"]
    assert main(words) == 0
    file = Store(tmp_path / ".steelyard").open("latest").path / "run.jsonl"
    ends = [place for place, byte in enumerate(file.read_bytes()) if byte == ord("\n")]
    capsys.readouterr()
    with full_beyond(ends[4] - 100):
        assert main(words) == 130
    said = capsys.readouterr().err
    assert "cannot write results" in said and "of 8 cases are saved in run" in said and "--resume" in said
    kept = len(Store(tmp_path / ".steelyard").open("latest").records)
    assert 0 < kept < 8 and f"{kept} of 8 cases" in said
    assert main([*words, "--resume"]) == 0 and len(Store(tmp_path / ".steelyard").open("latest").records) == 8


def test_a_cpu_has_no_index(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "fake/work", "-d", "cpu:5"]) == 2
    assert "there is no device 'cpu:5'" in capsys.readouterr().err
