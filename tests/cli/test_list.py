"""What there is, by name, by glob and by tag."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from steelyard.cli.list import KINDS
from steelyard.cli.main import main
from steelyard.engine import probing
from steelyard.engine.run import RunWatch
from steelyard.model.record import Record
from steelyard.report.progress import ERASE
from steelyard.store.runs import Header, Store
from tests.engine.drive import steelyard
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
        (["tag:smke"], "did you mean smoke"),
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


FILE = """
from steelyard import Task, metric, operator, variant, workload
@workload("own/add", axes={"n": [8, 16]}, tags=["mine"], backend="numpy")
def add(n, be):
    "Numbers, added; slowly."
    return Task(sum, (range(n),))
@add.variant("loop")
def loop(task):
    "Added one by one."
    return task
@variant("again")
def again(task, times=2):
    "More than once."
    return task
@metric("per_number", unit="s", better="lower")
def per_number(time, task):
    "Seconds for one of them."
    return None
@operator("own.thing")
def thing(x):
    "Something of one's own."
    return x
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "kern.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return "kern.py"


def test_a_file_is_listed_with_everything_it_defines(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", own]) == 0
    shown = capsys.readouterr().out
    assert "own/add      Numbers, added\n             n=8,16 · variants: eager, loop\n" in shown
    assert [name for name in ("again", "per_number", "own.thing", "loop") if f"\n{name} " not in shown] == []
    assert names(capsys, own) == ["own/add", "again", "loop", "per_number", "own.thing"]
    assert names(capsys, "variants", own) == ["again", "loop"] and names(capsys, own, "tag:mine") == ["own/add"]


def test_a_file_is_shown_with_a_line_that_runs_it(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", own]) == 0
    shown = capsys.readouterr().out
    assert "Numbers, added; slowly." in shown and "steelyard run kern.py own/add -a n=16 -V eager,loop --vs eager" in shown
    assert "More than once." in shown and "Something of one's own." in shown
    assert main(["show", own, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["workloads"]["own/add"]["axes"] == {"n": [8, 16]} and "loop" in told["workloads"]["own/add"]["variants"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["list", "nosuch.py"], "cannot read"),
        (["list", "runs", "kern.py"], "files define no runs"),
        (["list", "kern.py", "own/ad"], "did you mean own/add?"),
        (["show", "kern.py", "--history"], "has no samples and no history"),
        (["show", "empty.py"], "defines no workload, variant or metric"),
        (["list", "broken.py"], "could not load"),
        (["show", "broken.py"], "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_listed_of_a_file_is_told(own: str, args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.py").write_text("")
    Path("broken.py").write_text("1 / 0")
    assert main(args) == 2
    assert said in capsys.readouterr().err


def test_recipes_are_listed_as_they_are_written_and_tried(tmp_path: Path) -> None:
    told = steelyard("list", "recipes", cwd=tmp_path).stdout
    assert "int4wo[-32|64|128|256][-hqq]" in told and "Removed from torchao" in told
    found = {
        row["name"]: row for row in json.loads(steelyard("list", "recipes", "int8wo", "marlin", "--probe", "--json", cwd=tmp_path).stdout)
    }
    assert found["int8wo"]["status"] == "ok" and found["int8wo"]["sqnr"] > 35 and found["int8wo"]["smaller"] > 1.8
    assert found["marlin"]["status"] == "unsupported" and "any more" in found["marlin"]["reason"]
    assert "--probe is only for recipes" in steelyard("list", "--probe", cwd=tmp_path, check=2).stderr


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("live", [True, False])
def test_trying_recipes_tells_whom_it_waits_for_and_how_far_it_is(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"workload": "torchao/linear", "variant": "int8wo"}
    stream = Terminal() if live else io.StringIO()

    def execute(ready: Any, store: Any, words: Any, watch: Callable[[Any], RunWatch]) -> Any:
        looking = watch(None)
        looking.waiting("waiting for run k3f9, which measures on this machine")
        looking.started("torchao/linear@torch/int8wo:eval")
        looking.finished(record := Record("torchao/linear@torch/int8wo:eval", case, "ok"))
        return SimpleNamespace(run=SimpleNamespace(records=[record]))

    monkeypatch.setattr(probing.conduct, "from_experiment", lambda experiment: None)
    monkeypatch.setattr(probing.conduct, "execute", execute)
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert main(["list", "recipes", "int8wo", "--probe"]) == 0
    told = stream.getvalue()
    assert "waiting for run k3f9, which measures on this machine" in told
    assert ("[1/1] torchao/linear" in told) is live and told.endswith(ERASE if live else "\n")
