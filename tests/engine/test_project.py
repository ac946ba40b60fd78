"""What a file can import is the same for every command: modules beside it, the project it lies in, and no other project's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import registry
from steelyard.engine import project
from tests.engine.drive import run_json, steelyard

BENCH = """
from steelyard import Task, workload
from beside import SIZE
from kernels import add
@workload("own/add", axes={"n": [SIZE]}, backend="numpy")
def own(n, be):
    "Numbers, added."
    import late
    return Task(add, (n,))
@own.variant("twice")
def twice(task):
    "Added two times."
    from dataclasses import replace
    return replace(task, fn=lambda n: (add(n), add(n))[0])
"""


def make(folder: Path, work: int = 10, *, git: bool = True) -> Path:
    """A project with its package in `src`, a module at its top, and a benchmark in a folder of its own."""
    for name, text in {
        "src/kernels.py": f"def add(n):\n    return sum(range(n * {work}))\n",
        "late.py": "",
        "bench/beside.py": "SIZE = 8\n",
        "bench/x.py": BENCH,
        "bench/night.toml": 'files = ["x.py"]\n[[matrix]]\nworkload = ["own/add"]\n',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if git:
        (folder / ".git").mkdir()
    return folder


@pytest.mark.parametrize(("start", "file"), [(".", "bench/x.py"), ("bench", "x.py"), ("..", "head/bench/x.py"), (".", "bench/night.toml")])
def test_run_imports_the_project_from_wherever_it_is_started(start: str, file: str, tmp_path: Path) -> None:
    found = run_json(file, "--budget", "20ms", cwd=make(tmp_path / "head") / start)
    assert [record["status"] for record in found["records"]] == ["ok"]


def test_without_git_the_current_folder_is_the_project(tmp_path: Path) -> None:
    make(tmp_path / "head", git=False)
    run_json("bench/x.py", "--budget", "20ms", cwd=tmp_path / "head")
    failed = steelyard("run", "x.py", cwd=tmp_path / "head" / "bench", check=2)
    assert "ModuleNotFoundError: No module named 'kernels'" in failed.stderr


@pytest.mark.parametrize("words", [
    ("run", "--dry-run", "x.py"), ("nightly", "x.py", "--keep", "kept", "--dry-run"), ("list", "x.py"), ("show", "x.py"),
])  # fmt: skip
def test_every_command_that_loads_the_file_can_import_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    assert "own/add" in steelyard(*words, cwd=make(tmp_path / "head") / "bench").stdout


@pytest.mark.parametrize("start", [pytest.param(".", marks=pytest.mark.deep), "bench"])
def test_each_side_of_a_comparison_has_its_own_project(start: str, tmp_path: Path) -> None:
    """The base does ten times the work, in a module that only its own checkout has like that."""
    make(tmp_path / "base", work=1000)
    head = make(tmp_path / "head", work=100) / start
    file, base = ("bench/x.py", "../base") if start == "." else ("x.py", "../../base/bench")
    (pair,) = run_json(file, "--vs-path", base, "--budget", "20ms", cwd=head)["pairs"]
    assert pair["ratio"] < 0.5


def test_a_base_inside_the_same_checkout_never_takes_the_heads_code(tmp_path: Path) -> None:
    head = make(tmp_path / "head")
    (head / "old" / "bench").mkdir(parents=True)
    for name in ("x.py", "beside.py"):
        (head / "old" / "bench" / name).write_text((head / "bench" / name).read_text())
    failed = steelyard("run", "bench/x.py", "--vs-path", "old", cwd=head, check=2)
    assert "path:old: could not load" in failed.stderr and "kernels" in failed.stderr


names = st.lists(st.sampled_from(["a", "a/b", "a/b/src", "c", "c/src", "d/e"]), max_size=4)


@given(here=st.sampled_from(["a", "a/b", "c", "d/e"]), tops=st.sets(st.sampled_from(["a", "a/b", "c", "."])), files=names)
def test_the_order_is_the_files_folder_then_the_projects(here: str, tops: set[str], files: list[str]) -> None:
    with TemporaryDirectory() as temporary:
        base = Path(temporary)
        for name in ("a/b/src", "c/src", "d/e"):
            (base / name).mkdir(parents=True)
        for top in tops:
            (base / top / ".git").mkdir()
        named = [str(base / name / "x.py") for name in files]
        found = project.around(base / here, named)
        assert len(set(found)) == len(found) and all(Path(folder).is_dir() for folder in found)
        own = list(dict.fromkeys(str(Path(file).parent) for file in named))
        assert list(found[: len(own)]) == own, "each file lies in a project of its own"
        rest = [folder for folder in found if folder not in own]
        for folder in (base / here, project.root_of(base / here)):
            assert str(folder) in found
            if (folder / "src").is_dir() and str(folder) in rest and str(folder / "src") in rest:
                assert rest.index(str(folder / "src")) < rest.index(str(folder))
        roots = [project.root_of(base / name) for name in (here, *files)]
        assert all(any(Path(folder).is_relative_to(root) for root in (*roots, base / here)) for folder in found), "and nothing beyond them"


folders = st.lists(st.sampled_from(["one", "two", "torchlike", "three"]), max_size=5)


@given(folders, folders)
def test_python_and_frameworks_are_never_hidden(first: list[str], then: list[str]) -> None:
    kept, before = list(sys.path), list(dict.fromkeys(sys.path))
    with TemporaryDirectory() as temporary:
        base = Path(temporary)
        for name in ("one", "two", "torchlike", "three"):
            (base / name).mkdir()
        (base / "torchlike" / "torch.py").write_text("")
        try:
            sys.path[:] = before
            for wanted in (first, then):
                registry.look_first([str(base / name) for name in wanted])
            found = list(sys.path)
        finally:
            sys.path[:] = kept
        own = str(Path(os.__file__).parent)
        asked = [str(base / name) for name in dict.fromkeys([*then, *first])]
        hiding = str(base / "torchlike")
        assert set(found) == {*before, *asked} and len(found) == len(before) + len(asked)
        assert [folder for folder in found if folder in asked and folder != hiding] == [folder for folder in asked if folder != hiding]
        assert not asked or all(found.index(own) < found.index(folder) for folder in asked)
        assert hiding not in asked or found[-1] == hiding


def test_a_benchmark_named_like_a_framework_does_not_stand_for_it(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(
        "from steelyard import Task, workload\n"
        "@workload('own/sum', axes={'n': [8]}, backend='numpy')\n"
        "def own(n, be):\n    import numpy\n    return Task(numpy.sum, (be.randn(n, dtype='fp32'),))\n"
    )
    for words in ((), ("--isolate", "case")):
        assert run_json("numpy.py", "--budget", "20ms", *words, cwd=tmp_path)["records"][0]["status"] == "ok"


def test_the_library_imports_the_project_too(tmp_path: Path) -> None:
    script = "import steelyard; print([record.status for record in steelyard.run('bench/night.toml', budget='20ms').records])"
    done = subprocess.run([sys.executable, "-c", script], cwd=make(tmp_path / "head"), capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == json.dumps(["ok"]).replace('"', "'"), done.stderr
