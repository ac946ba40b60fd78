"""One registration is all: a package with an entry point is known to run, check, convert, as, export, compare and list."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.cli.main import main

ABOUT = """
from steelyard.model.dialect import Dialect, Program

DIALECT = Dialect(
    "acme", "Sleep as ACME's tools do.", config="acme_dialect.parts", results="acme_dialect.parts", export="acme_dialect.parts",
    command="acme_dialect.command:command", programs=(Program("acme-count", "Count lines.", "acme_dialect.command:count"),),
)
"""
PARTS = """
import json
from pathlib import Path

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, time_of
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.protocol import Fixed

kind = "ACME config"


def recognise(path):
    return path.suffix == ".json" and '"acme"' in path.read_text()


def packages(path):
    return []


def read(path, files=(), place=None, device="cpu"):
    given = json.loads(path.read_text())["acme"]
    matrices = tuple(Matrix(("fake/work",), {"seconds": (ms / 1000,)}, backend=("fake",), label=f"work{ms}") for ms in given)
    return Experiment("acme", matrix=matrices, settings=Settings(fixed=Fixed(1, 3), verify=False))


def fits(data):
    return isinstance(data, dict) and "acme_times" in data


def lines(content, name):
    return None


def _read_results(data, path):
    return [ForeignSource([ForeignResult(name, [{"time": time_of(times, 1.0)}]) for name, times in data["acme_times"].items()])]


_read_config = read


def read(given, *rest, **named):
    return _read_config(given, *rest, **named) if isinstance(given, Path) else _read_results(given, *rest)


def text(run):
    times = {record.id: [record.metrics["time"].value] * 8 for record in run.records}
    return json.dumps({"acme_times": times}) + "\\n"
"""
COMMAND = """
from pathlib import Path

import click

from steelyard.dialects.commands import option
from steelyard.dialects.options import Flag, PlainOptions


class AcmeOptions(PlainOptions):
    loud = False


command = click.Command("acme", callback=lambda loud: click.echo(f"loud {loud}"), params=[
    option(Flag(("--loud",), "loud", "switch", "Say more."), AcmeOptions()),
])


@click.command()
@click.argument("file")
def count(file):
    click.echo(len(Path(file).read_text().splitlines()))
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip would leave it; workers find it too."""
    package = tmp_path / "site" / "acme_dialect"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ABOUT)
    (package / "parts.py").write_text(PARTS)
    (package / "command.py").write_text(COMMAND)
    info = package.parent / "acme_dialect-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dialect\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[steelyard.dialects]\nacme = acme_dialect:DIALECT\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    (tmp_path / "three.json").write_text(json.dumps({"acme": [1, 2, 4]}))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("acme_dialect")]:
        del sys.modules[name]


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(words)) == code, capsys.readouterr()
    found = capsys.readouterr()
    return found.out + found.err


def test_its_commands_are_below_as(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "as", "--help")
    assert "\n  acme " in listed and "  Sleep as ACME's tools do.\n" in listed and "acme-count" in listed and "ptxla" in listed
    assert "acme_dialect.command" not in sys.modules
    assert said(capsys, "as", "acme", "--loud") == "loud True\n"
    assert said(capsys, "as", "acme-count", "three.json") == "1\n"
    assert "did you mean acme" in said(capsys, "as", "acmi", code=2)


def test_its_configs_are_checked_converted_and_run_and_its_results_written_and_read(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME config · 3 cases would run" in said(capsys, "check", "three.json")
    for name in ("native.toml", "native.json"):
        assert "3 configs" in said(capsys, "convert", "three.json", "-o", name)
        assert said(capsys, "check", name, "--json").count('"cases": 3')
    assert "# From the ACME config three.json." in (acme / "native.toml").read_text()
    assert "fixed = {warmup = 1, repeats = 3}" in (acme / "native.toml").read_text()
    said(capsys, "run", "three.json")
    assert "saved times.json" in said(capsys, "export", "latest", "--to", "acme", "-o", "times.json")
    assert "3 ok" in said(capsys, "show", "times.json")
    assert "PARAM configs, TorchAO configs, ACME configs can be converted" in said(capsys, "convert", "times.json", code=2)


def test_it_is_listed_with_all_its_parts(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "list", "dialects", "acme")
    assert "steelyard as acme · steelyard as acme-count · reads its config files and result files" in listed
    assert "steelyard export --to acme" in " ".join(listed.split())


def test_a_package_that_cannot_be_loaded_is_told_and_does_not_stand_before_ours(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (acme / "site" / "acme_dialect" / "__init__.py").write_text("import nothing_of_the_kind\n")
    assert "Usage" in said(capsys, "as", "param")
    assert "dialect acme of package acme-dialect cannot be loaded" in said(capsys, "as", "acme", code=2)


def test_a_format_that_nobody_writes_is_a_mistake(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean acme" in said(capsys, "export", "--to", "acmee", code=2)
