"""Each example is run as a reader would run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples with a store of its own."""
    here = tmp_path / "examples"
    shutil.copytree(EXAMPLES, here)
    (here / ".steelyard").mkdir()
    return here


def call(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **(env or {})}
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def run(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(folder, "-m", "steelyard", "run", *words, "--budget", "10ms", "--json", env=env))
    return found


def verified(record: dict[str, Any]) -> tuple[str, str, str]:
    check = record["verification"]
    return record["status"], check["status"], check["against"]


@pytest.mark.torch
def test_my_softmax_is_right_on_both_frameworks_and_in_both_ways(folder: Path) -> None:
    found = run(folder, "my_softmax.py", "-V", "eager,shifted", "--vs", "eager", "-B", "torch,numpy", "-a", "n=256")
    told = {(record["case"]["backend"], record["case"]["variant"]): record for record in found["records"]}
    assert verified(told["torch", "eager"]) == ("ok", "passed", "numpy fp64")
    assert verified(told["torch", "shifted"]) == ("ok", "passed", "torch eager")
    assert verified(told["numpy", "eager"]) == ("ok", "passed", "numpy fp64")
    assert ("numpy", "shifted") not in told, "dropped, because the variant belongs to torch"
    assert [pair["head"]["id"] for pair in found["pairs"]] == [told["torch", "shifted"]["id"]]


@pytest.mark.torch
def test_the_variant_is_compared_and_the_metric_recorded(folder: Path) -> None:
    found = run(folder, "variant_and_metric.py", "op/gelu", "-V", "eager,inference", "--vs", "eager")
    assert [verified(record)[:2] for record in found["records"]] == [("ok", "passed")] * 2
    assert len(found["pairs"]) == 1
    for record in found["records"]:
        cost, bandwidth = record["metrics"]["cost"], record["metrics"]["bandwidth"]
        assert cost["unit"] == "s/GB" and cost["better"] == "lower"
        assert cost["value"] * bandwidth["value"] == pytest.approx(1e9)


@pytest.mark.torch
@pytest.mark.deep
def test_the_sweep_measures_its_matrix_and_drops_what_its_rule_says(folder: Path) -> None:
    preview = json.loads(call(folder, "-m", "steelyard", "run", "sweep.toml", "--dry-run", "--json"))
    assert [item["case"] for item in preview["dropped"]] == ["op/layer_norm[dtype=fp32,m=64,n=1024]@numpy/eager:eval"]
    found = run(folder, "sweep.toml")
    assert [record["id"] for record in found["records"]] == preview["cases"]
    assert {record["status"] for record in found["records"]} == {"ok"}


def test_the_library_example_measures_and_saves(folder: Path) -> None:
    told = call(folder, "library.py")
    assert "np.sort:" in told and "items a second" in told
    saved = json.loads(call(folder, "-m", "steelyard", "show", "--json"))
    assert [record["status"] for record in saved["records"]] == ["ok", "ok"]
    assert all(record["id"] in told for record in saved["records"])


def test_an_installed_package_adds_a_workload_a_variant_and_a_metric(folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
    call(folder, *pip, "--target", str(site), "./package")
    env = {"PYTHONPATH": str(site)}
    assert "acme/scale" in call(folder, "-m", "steelyard", "list", "acme/*", env=env)
    found = run(folder, "acme/scale", "-V", "eager,quiet", "--vs", "eager", env=env)
    assert [record["status"] for record in found["records"]] == ["ok", "ok"]
    assert [record["verification"]["status"] for record in found["records"]] == ["passed", "passed"]
    assert all("values_per_second" in record["metrics"] for record in found["records"])
    other = run(folder, "op/softmax", "-B", "numpy", "-V", "quiet", "-a", "n=256", env=env)
    assert [record["status"] for record in other["records"]] == ["ok"]
