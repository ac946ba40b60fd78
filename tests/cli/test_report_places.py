"""Where a report may be put: files and links to files, and nothing that is something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.store.runs import Store
from tests.report import hostile


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hostile.saved(Store(tmp_path / ".steelyard"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_link_stays_and_its_file_is_written(here: Path) -> None:
    (here / "public").mkdir()
    (here / "report.csv").symlink_to("public/today.csv")
    assert main(["report", "-o", "report.csv"]) == 0
    assert (here / "report.csv").is_symlink() and "op/a" in (here / "public" / "today.csv").read_text(encoding="utf-8")


def test_a_pipe_and_a_device_are_not_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.csv")
    Path("null.csv").symlink_to(os.devnull)
    for name in ("pipe.csv", "null.csv"):
        assert main(["report", "-o", name]) == 2
        assert "a pipe or a device" in capsys.readouterr().err
    assert stat.S_ISFIFO(Path("pipe.csv").stat().st_mode) and Path("null.csv").is_symlink()


@pytest.mark.parametrize("name", ["loop.csv", f"{'a' * 300}.csv", "gone.csv", "none/x.csv", "folder.csv"])
def test_a_place_that_cannot_be_is_a_mistake_and_no_bug(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("loop.csv").symlink_to("loop.csv")
    Path("gone.csv").symlink_to("nowhere/x.csv")
    Path("folder.csv").mkdir()
    assert main(["report", "-o", name]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_name_may_be_as_long_as_the_system_allows(here: Path) -> None:
    assert main(["report", "-o", f"{'a' * 250}.csv"]) == 0


def test_a_drawing_library_that_cannot_be_loaded_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken").mkdir()
    (here / "broken" / "vl_convert.py").write_text("raise ImportError('libsomething.so is missing')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(here / "broken")
    monkeypatch.delitem(__import__("sys").modules, "vl_convert", raising=False)
    assert main(["report", "-o", "a.svg"]) == 2
    assert "libsomething.so is missing" in capsys.readouterr().err
