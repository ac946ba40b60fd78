"""The first command a newcomer types must say plainly what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT


def make(*words: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True, env=env, check=False, timeout=60)


def stub(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_help_is_the_default_and_names_every_target() -> None:
    done = make()
    assert done.returncode == 0
    for target in ("bench", "test", "test-deep", "test-stacks", "benchmarks", "docs", "site", "clean"):
        assert f"make {target} " in done.stdout


@pytest.mark.parametrize("target", ["bench", "test"])
def test_a_missing_compiler_is_told_before_anything_is_installed(target: str, tmp_path: Path) -> None:
    done = make(target, "CXX=no-such-compiler", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "no-such-compiler is not on PATH" in done.stderr and "apt-get install g++" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_missing_python_is_told(tmp_path: Path) -> None:
    done = make("bench", "CXX=true", f"PYTHON={tmp_path / 'python3'}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "there is no" in done.stderr and "Python 3.11 or newer" in done.stderr


def test_an_old_python_is_told_with_its_version(tmp_path: Path) -> None:
    old = stub(tmp_path / "python3", 'if [ "$1" = --version ]; then echo Python 3.9.1; else exit 1; fi')
    done = make("bench", "CXX=true", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "Python 3.9.1" in done.stderr and "3.11 or newer" in done.stderr


def test_a_python_without_venv_is_told_how_to_get_it(tmp_path: Path) -> None:
    bare = stub(tmp_path / "python3", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    done = make("bench", "CXX=true", f"PYTHON={bare}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    stub(venv / "bin" / "python", "echo installing")
    stub(venv / "bin" / "steelyard", "echo measuring")
    first, second = (make("bench", "CXX=true", f"VENV={venv}") for _ in range(2))
    assert "installing" in first.stdout and "measuring" in first.stdout
    assert "installing" not in second.stdout and "measuring" in second.stdout
