"""Two halves of a run are of the same code: the user's modules that were really loaded decide, with git and without."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.engine.modules import programs, user_modules
from steelyard.store.runs import Run, Store, read_run

BENCH = """
from steelyard import Task, workload
import early

@workload("mine/work", axes={"n": [1, 2, 3]}, backend="fake")
def work(n, be):
    import late
    x = be.randn(early.VALUE)

    def fn():
        be.spend(late.SECONDS * n)
        return x

    return Task(fn)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "early.py").write_text("VALUE = 1\n", encoding="utf-8")
    (tmp_path / "late.py").write_text("SECONDS = 1e-3\n", encoding="utf-8")
    (tmp_path / "bench.py").write_text(BENCH, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measure(*words: str) -> int:
    return main(["run", "bench.py", "--runs", "2", "--isolate", "case", *words])


def half(project: Path) -> Run:
    """A run of which only the first case is there, as if it had been killed."""
    assert measure() == 0
    file = Store(project / ".steelyard").open("latest").path / "run.jsonl"
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    return read_run(file.parent)


def test_a_run_tells_the_users_files_and_nothing_else(project: Path) -> None:
    assert measure() == 0
    run = Store(project / ".steelyard").open("latest")
    assert set(run.header.sources) == {"bench.py", "early.py"}
    files = [{key for key in record.source if key.startswith("file:")} for record in run.records]
    assert files == [{"file:late.py"}, set(), set()]
    assert len({record.source["modules"] for record in run.records}) == 1


@pytest.mark.parametrize("file", ["early.py", "late.py"])
def test_an_edited_file_is_named_and_its_run_not_continued(project: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = half(project)
    with (project / file).open("a", encoding="utf-8") as edited:
        edited.write("# edited\n")
    capsys.readouterr()
    assert measure("--resume", before.id) == 2
    assert f"{file} was edited after run {before.id} was started" in capsys.readouterr().err
    assert measure("--resume") == 0
    assert f"warning: {file} was edited after run {before.id} was started, so nothing is continued" in capsys.readouterr().err
    assert len(read_run(before.path).records) == 1 and len(Store(project / ".steelyard").open("latest").records) == 3


def test_an_unchanged_project_is_continued(project: Path) -> None:
    before = half(project)
    assert measure("--resume") == 0
    after = read_run(before.path)
    assert len(after.records) == 3 and after.proven and not after.warnings


def test_an_edited_file_is_not_retried_with(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "late.py").write_text("raise ValueError('broken')\n", encoding="utf-8")
    assert measure() == 3
    (project / "late.py").write_text("SECONDS = 1\n", encoding="utf-8")
    assert measure("--retry", "failed") == 0
    assert "late.py" not in json.dumps(Store(project / ".steelyard").open("latest").header.sources)


def test_a_run_whose_code_changed_on_the_way_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "late.py").write_text(
        "from pathlib import Path\nfile = Path(__file__)\nfile.write_text(file.read_text() + '# grows\\n')\nSECONDS = 1\n", encoding="utf-8"
    )
    assert measure() == 0
    assert "late.py was edited while the run was measured: from record 2 on" in capsys.readouterr().err
    assert len(Store(project / ".steelyard").open("latest").warnings) == 2


def test_a_program_of_the_project_is_part_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prog.py").write_text("pass\n", encoding="utf-8")
    assert list(programs([sys.executable, "prog.py", "./prog.py", "../x", "/etc/passwd", "nosuch", "a\0b", 5], tmp_path)) == ["prog.py"]
    main(["run", "--runs", "1", "--", sys.executable, "prog.py"])
    assert list(Store(tmp_path / ".steelyard").open("latest").header.sources) == ["prog.py"]


def test_neither_python_nor_packages_nor_ours_are_the_users() -> None:
    assert not [name for name in user_modules() if "steelyard/engine" in name or "numpy" in name or name.endswith("json/__init__.py")]


def test_a_comparison_names_the_files_that_no_commit_tells(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure() == 0
    (project / "late.py").write_text("SECONDS = 2e-3\n", encoding="utf-8")
    assert measure() == 0
    capsys.readouterr()
    main(["compare", "latest~1", "latest"])
    assert "files were edited in between: late.py" in " ".join(capsys.readouterr().out.split())
