"""Recipes and models of an installed package: named with words behind the name, on the command line and in files."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.engine import configs
from steelyard.engine.place import Place
from steelyard.engine.plan import expand
from steelyard.engine.selection import Request, gather
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow

RECIPES = """
from steelyard import register_model, register_recipe

def build(group=32):
    return lambda model: None

def layer(m, k, n, dtype, device):
    raise NotImplementedError

register_recipe("mine", build, params={"group": 32})
register_model("acme", layer)
"""
POINTS = "[steelyard.variants]\nmine = acme_installed:mine\n[steelyard.workloads]\ntorchao/acme = acme_installed:acme\n"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as pip would leave it; workers find it too."""
    (tmp_path / "acme_installed.py").write_text(RECIPES)
    info = tmp_path / "acme_installed-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-installed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    importlib.invalidate_caches()
    yield
    assert "acme_installed" not in sys.modules, "the conductor imports nobody's package"


def planned(request: Request) -> set[str]:
    experiment, catalogue, entries = gather(request, Place())
    assert ("variants", "mine") in entries
    return {f"{job.case.workload} {job.case.variant}" for job in expand(experiment, catalogue, entries=entries).jobs}


def test_words_on_the_command_line() -> None:
    assert planned(Request(("torchao/acme",), variant=("mine-64", "eager"))) == {"torchao/acme mine-64", "torchao/acme eager"}
    assert planned(Request(("torchao/linear",), variant=("mine",))) == {"torchao/linear mine-32"}
    assert planned(Request(("torchao/linear[k=8,m=8,n=8]@torch/mine-64:eval",))) == {"torchao/linear mine-64"}


def test_words_in_an_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[[matrix]]\nworkload = "torchao/acme"\nvariant = ["eager", "mine-64"]\n')
    assert planned(Request((str(tmp_path / "own.toml"),))) == {"torchao/acme mine-64", "torchao/acme eager"}


def test_words_in_rows_as_other_systems_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another system's file only the rows are known; what they name is loaded."""
    written = Case("torchao/acme", (("m", 8), ("k", 64), ("n", 64), ("dtype", "bf16")), variant="mine-064")
    row = ResultRow("row", (written, written.with_variant("eager")), ((written, written.with_variant("eager")),))
    (tmp_path / "own.yml").write_text("")
    monkeypatch.setattr(configs, "load", lambda *words: Experiment("own", rows=(row,)))
    monkeypatch.setattr(configs, "packages", lambda path: ())
    assert planned(Request((str(tmp_path / "own.yml"),))) == {"torchao/acme mine-64", "torchao/acme eager"}
