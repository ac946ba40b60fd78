"""Environments built for real: pinned packages, a worker in a foreign interpreter, removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.drive import run_json, steelyard

WITHIN = 900.0
"""Seconds for a command that installs packages or starts an interpreter among them."""
pytestmark = [pytest.mark.stacks, pytest.mark.timeout(1800)]


def test_a_case_runs_in_an_environment_of_its_own(tmp_path: Path, apart: Path) -> None:
    made = json.loads(steelyard("env", "create", "numpy", "--json", cwd=tmp_path, within=WITHIN).stdout)
    assert made["packages"]["numpy"] == "2.4.6"
    found = run_json("op/sum", "-B", "numpy", "--env", "numpy", "--budget", "50ms", cwd=tmp_path, within=WITHIN)
    assert found["records"][0]["status"] == "ok"
    assert found["records"][0]["environment"]["numpy"] == "2.4.6"
    absent = run_json("op/sum", "-B", "torch", "--env", "numpy", cwd=tmp_path, check=5, within=WITHIN)
    assert absent["records"][0]["status"] == "unsupported"
    assert "torch" in absent["records"][0]["reason"]
    (tmp_path / "both.toml").write_text('[[matrix]]\nworkload = "op/sum"\nbackend = "numpy"\nenv = ["here", "numpy"]\n')
    both = run_json("both.toml", "--budget", "50ms", cwd=tmp_path, within=WITHIN)["records"]
    assert [(record["case"].get("env", ""), record["status"]) for record in both] == [("", "ok"), ("numpy", "ok")]
    assert [record["id"].endswith(":env=numpy") for record in both] == [False, True]
    listed = json.loads(steelyard("env", "list", "--json", cwd=tmp_path).stdout)
    assert [env["name"] for env in listed["environments"]] == ["numpy"]
    steelyard("env", "remove", "numpy", cwd=tmp_path)
    assert not (apart / "envs" / "numpy").exists()


def test_an_environment_that_cannot_be_built_leaves_nothing_behind(tmp_path: Path, apart: Path) -> None:
    steelyard("env", "create", "numpy", "no-such-package-of-that-name==0", cwd=tmp_path, check=2, within=WITHIN)
    assert not (apart / "envs" / "numpy").exists()
