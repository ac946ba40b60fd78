"""What there is, by name, by glob and by tag."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from steelyard.cli.list import KINDS
from steelyard.cli.main import main
from steelyard.store.runs import Header, Store
from tests.report.made import figures, record


def names(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["list", *args, "--json"]) == 0
    return [item["name"] for item in json.loads(capsys.readouterr().out)]


def test_workloads_are_listed_with_their_axes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "op/softmax"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("op/softmax   Row softmax\n") and "n=256,1024 dtype=fp32" in shown


def test_globs_folders_and_tags_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "op/*norm") == ["op/layer_norm", "op/rms_norm"]
    assert names(capsys, "layer") == names(capsys, "workloads", "layer/*") == names(capsys, "tag:layer")
    assert names(capsys, "op/softmax", "op/sum") == ["op/softmax", "op/sum"]


def test_what_serves_our_tests_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    assert not [name for kind in ("workloads", "backends") for name in names(capsys, kind) if name.startswith("fake")]
    assert "fake/work" in names(capsys, "--all") and names(capsys, "fake/*") == ["fake/work"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "runs"])
def test_every_kind_has_something_and_fits(kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(capsys, kind)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list", kind]) == 0
    assert max(map(cell_len, capsys.readouterr().out.split("\n"))) <= 60


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["op/sofmax"], "did you mean op/softmax"),
        (["variant"], "did you mean variants?"),
        (["tag:smke"], "did you mean smoke?"),
        (["variants", "comple"], "compile"),
    ],
)
def test_a_name_that_is_not_there_is_a_mistake_with_a_hint(args: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *args]) == 2
    said = capsys.readouterr()
    assert said.out == "" and hint in said.err


def test_runs_are_listed_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "runs", "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith("no runs")
    for created, status in (("2026-01-02T03:04:05Z", "ok"), ("2026-01-03T03:04:05Z", "failed")):
        with Store(tmp_path).create(Header(created=created, experiment="nightly")) as writer:
            writer.append(record("op/a@torch/eager:eval", figures(1e-3, 1e-5), status))
            if status == "ok":
                writer.seal()
    assert main(["list", "runs", "--store", str(tmp_path)]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert "2026-01-03 03:04 UTC · 1 failed · nightly" in first and second.strip() == "unfinished" and "1 ok" in third


def test_listing_needs_no_framework() -> None:
    code = "import sys; from steelyard.cli.main import main; main(['list', '--json']); sys.exit(bool({'torch', 'rich'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
