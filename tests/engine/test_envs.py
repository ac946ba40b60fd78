"""Environments that are there, half there or gone: what is said of each, and what a plan makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard import registry
from steelyard.engine import envs, plan
from steelyard.engine.conversation import Lost
from steelyard.engine.crew import Crew
from steelyard.engine.place import Place
from steelyard.engine.sinks import Sink
from steelyard.errors import UsageError
from steelyard.model.experiment import Experiment, Matrix
from tests.engine.drive import run_json, steelyard

PINNED = {"torch": "2.9.1", "torch_xla": "2.9.0", "numpy": "2.4.6"}


def environment(apart: Path, name: str, *, python: bool = True, **note: Any) -> Path:
    """A folder that looks like an environment, with this note or none."""
    folder = apart / "envs" / name
    (folder / "bin").mkdir(parents=True)
    if python:
        (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / envs.NOTE).write_text(json.dumps({"stack": "torch-xla", "packages": PINNED} | note))
    return folder


def test_a_whole_one_is_found_and_used(apart: Path) -> None:
    folder = environment(apart, "torch-xla")
    assert [(env.name, env.stack, env.trouble) for env in envs.listing()] == [("torch-xla", "torch-xla", "")]
    assert envs.find("torch-xla").python == folder / "bin" / "python"
    assert envs.moved_pins(envs.find("torch-xla")) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"stack": "numpy", "packages": [1]}', "\xff"])
def test_a_note_that_cannot_be_read_costs_that_environment_alone(apart: Path, text: str) -> None:
    (environment(apart, "broken") / envs.NOTE).write_text(text, encoding="latin-1")
    environment(apart, "torch-xla")
    assert [bool(env.trouble) for env in envs.listing()] == [True, False]
    with pytest.raises(UsageError, match="environment broken cannot be used"):
        envs.find("broken")
    assert envs.place_for("torch_xla", Place()).python.startswith(str(apart / "envs" / "torch-xla"))


def test_one_whose_interpreter_is_gone_is_passed_over_and_says_so(apart: Path, tmp_path: Path) -> None:
    environment(apart, "torch-xla", python=False)
    assert envs.place_for("torch_xla", Place()) == Place()
    said = steelyard("run", "op/sum", "--env", "torch-xla", cwd=tmp_path, check=2).stderr
    assert "its interpreter is missing" in said and "steelyard env remove torch-xla, then steelyard env create torch-xla" in said


def test_a_building_that_was_killed_can_be_removed_and_begun_again(apart: Path, tmp_path: Path) -> None:
    folder = environment(apart, "mine", stack="numpy")
    (folder / envs.NOTE).write_text('{"stack": "numpy"}')
    listed = steelyard("env", "list", cwd=tmp_path)
    assert "it was not built completely" in listed.stdout
    assert "renew it: steelyard env remove mine, then steelyard env create numpy --name mine" in listed.stderr
    steelyard("env", "remove", "mine", cwd=tmp_path)
    assert not folder.exists()


def test_one_that_holds_other_versions_than_are_pinned_now_is_told(apart: Path, tmp_path: Path) -> None:
    environment(apart, "torch-xla", packages={"torch-xla": "2.8.1", "torch": "2.9.1+cpu", "idna": "3"})
    assert envs.moved_pins(envs.find("torch-xla")) == {"torch-xla": ("2.8.1", "2.9.0")}
    listed = steelyard("env", "list", cwd=tmp_path)
    assert "torch 2.9.1+cpu, torch_xla 2.8.1" in listed.stdout
    assert "pinned now: torch-xla 2.9.0; renew it: steelyard env remove torch-xla" in listed.stderr


@pytest.mark.parametrize(
    ("word", "stack", "release"),
    [("jax-0.9", "jax", "0.9"), ("jax-0.9.1", "jax", "0.9.1"), ("torch-xla", "torch-xla", ""), ("torch-xla-2.8", "torch-xla", "2.8")],
)
def test_a_stack_may_be_named_with_a_version(apart: Path, word: str, stack: str, release: str) -> None:
    assert envs.split_release(word) == (stack, release)
    assert envs.check(word, None) == apart / "envs" / word


@pytest.mark.parametrize("word", ["jax-", "jax-new", "jax-0.9rc", "nojax-0.9"])
def test_what_is_no_version_of_a_stack_is_no_stack(apart: Path, word: str) -> None:
    with pytest.raises(UsageError, match="no stack named"):
        envs.check(word, None)


def test_a_version_takes_the_pins_of_its_own_packages_away_and_no_others(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def installed(words: list[str], **_: Any) -> Any:
        asked.append([*words, (apart / "envs" / "jax-0.9" / "constraints.txt").read_text()])
        raise OSError("no network here")

    monkeypatch.setattr(envs.venv, "create", lambda *args, **kwargs: None)
    monkeypatch.setattr(envs.subprocess, "Popen", installed)
    with pytest.raises(UsageError, match="could not build environment jax"):
        envs.create("jax-0.9")
    [words] = asked
    assert "jax==0.9.*" in words and "numpy" in words
    assert "numpy==" in words[-1] and "jax==" not in words[-1] and "jaxlib==" not in words[-1]


def test_what_the_installer_does_is_told_as_it_goes(apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip.py"
    pip.write_text(
        "print('Collecting jax==0.9\\n  Downloading https://x.org/a/jax-0.9.whl (2.9 MB)\\nno step\\nInstalling collected packages: jax')"
    )
    told: list[str] = []
    envs._install([sys.executable, str(pip)], told.append)
    assert told == ["found jax==0.9", "downloading jax-0.9.whl (2.9 MB)", "installing jax"]


def test_an_installer_that_fails_says_what_it_said_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pip = tmp_path / "pip.py"
    pip.write_text("print('ERROR: no such package'); raise SystemExit(1)")
    with pytest.raises(subprocess.CalledProcessError):
        envs._install([sys.executable, str(pip)], lambda step: None)
    assert "ERROR: no such package" in capsys.readouterr().err


def test_one_of_another_version_is_not_called_old(apart: Path) -> None:
    environment(apart, "jax-0.9", stack="jax", release="0.9", packages={"jax": "0.9.1", "jaxlib": "0.9.1", "numpy": "1.0"})
    found = envs.find("jax-0.9")
    assert list(envs.moved_pins(found)) == ["numpy"]
    assert found.remedy.endswith("steelyard env create jax-0.9")


@pytest.mark.parametrize("mistake", ["raise ImportError('undefined symbol: _ZN5torch')", "[].dim_of_undefined_symbol"])
def test_packages_that_do_not_fit_together_are_unsupported_with_what_they_said(mistake: str, apart: Path, tmp_path: Path) -> None:
    folder = environment(apart, "torch-xla")
    broken = folder / "site"
    for name in ("torch", "torch_xla"):
        (broken / name).mkdir(parents=True)
        (broken / name / "__init__.py").write_text(f"{mistake}\n")
    python = folder / "bin" / "python"
    python.unlink()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{broken}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    [record] = run_json("op/sum", "-B", "torch_xla", "--env", "torch-xla", cwd=tmp_path, check=5)["records"]
    assert record["status"] == "unsupported"
    assert "undefined" in record["reason"] and "steelyard env list" in record["reason"]


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "a b", "x\x1b[31m", "ü"])
def test_names_that_are_none_are_refused(apart: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not a name for an environment"):
        envs.check("numpy", name)


def test_one_that_does_not_start_costs_its_own_cases_alone(apart: Path, tmp_path: Path) -> None:
    for name, start in (("dies", "#!/bin/sh\nexit 7\n"), ("nothing", "")):
        python = environment(apart, name, stack="numpy", python=False) / "bin" / "python"
        python.write_text(start)
        python.chmod(0o755)
    (tmp_path / "all.toml").write_text(
        '[[matrix]]\nworkload = ["op/sum", "op/copy"]\nbackend = "numpy"\naxes = {n = 64}\nenv = ["dies", "nothing", "here"]\n'
    )
    records = run_json("all.toml", "--budget", "20ms", cwd=tmp_path, check=3)["records"]
    told = {(record["case"]["workload"], record["case"].get("env", "")): (record["status"], record["reason"]) for record in records}
    assert [status for (_, env), (status, _) in told.items() if not env] == ["ok", "ok"]
    [alone] = run_json("op/sum", "-B", "numpy", "--env", "dies", cwd=tmp_path, check=3)["records"]
    assert alone["reason"].startswith("no worker could be started in environment dies")
    assert [status for (_, env), (status, _) in told.items() if env] == ["crashed"] * 4
    assert all(reason.startswith(f"no worker could be started in environment {env}") for (_, env), (_, reason) in told.items() if env)


def test_what_starts_no_worker_is_tried_once_and_keeps_nothing_open(apart: Path) -> None:
    python = environment(apart, "nothing", python=False) / "bin" / "python"
    python.write_text("")
    python.chmod(0o755)
    made = plan.expand(Experiment(matrix=(Matrix(("op/sum",), {"n": (8, 16, 32)}, ("torch",), env=("nothing",)),)), registry.catalogue())
    jobs = [replace(job, fresh=True) for job in made.jobs]
    with Crew.assemble() as crew:
        opened = []
        for job in jobs:
            [(_, lost)] = crew.measure([job], made, Sink())
            assert isinstance(lost, Lost) and lost.status == "crashed" and "environment nothing" in lost.reason
            opened.append(len(list(Path("/proc/self/fd").iterdir())))
    assert opened[0] == opened[-1]


def test_the_word_for_this_one_is_no_name_of_another(apart: Path) -> None:
    with pytest.raises(UsageError, match="here cannot be the name of an environment"):
        envs.check("numpy", "here")
    with pytest.raises(UsageError, match=r"here is the current environment\n.*leave it out"):
        envs.find("here")


def test_building_where_another_is_being_built_leaves_that_one_alone(apart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment(apart, "numpy")
    monkeypatch.setattr(envs, "check", lambda stack, name: folder)
    with pytest.raises(UsageError, match="File exists"):
        envs.create("numpy")
    assert (folder / envs.NOTE).is_file()


def test_another_environment_of_the_same_name_is_another_run(apart: Path) -> None:
    from steelyard.engine.plan import expand
    from steelyard.model.experiment import Experiment, Matrix
    from steelyard.registry import catalogue

    environment(apart, "torch-xla")
    marks = set()
    for version in ("2.9.0", "2.9.0", "2.9.1"):
        note = {"stack": "torch-xla", "packages": {"torch_xla": version}}
        (apart / "envs" / "torch-xla" / envs.NOTE).write_text(json.dumps(note))
        plan = expand(Experiment(matrix=(Matrix(("op/sum",), backend=("torch_xla",)),)), catalogue())
        marks.add(plan.fingerprint("machine"))
    assert len(marks) == 2


def test_two_copies_of_the_package_never_share_a_parcel(apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = envs.parcel()
    (tmp_path / "steelyard").mkdir()
    (tmp_path / "steelyard" / "__init__.py").touch()
    monkeypatch.setattr(envs.steelyard, "__file__", str(tmp_path / "steelyard" / "__init__.py"))
    theirs = envs.parcel()
    assert ours != theirs
    assert (theirs / "steelyard").resolve() == tmp_path / "steelyard"
    assert (ours / "steelyard").resolve() == Path(envs.__file__).parents[1]
