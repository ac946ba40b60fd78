"""Replays on the command line: the part of a trace that is meant, and a replay as a script."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from steelyard.cli.main import main
from tests.workloads.traces import recorded as made

pytestmark = pytest.mark.torch
EXAMPLE = Path(__file__).parents[3] / "examples" / "traces" / "mlp.json"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    x = made.tensor(10, [8, 8])
    away = made.call(4, "far::away(Tensor x) -> Tensor", [x], [made.tensor(12, [8, 8])])
    return made.write(tmp_path / "step.json", made.call(3, made.MM, [x, x], [made.tensor(11, [8, 8])]), away)


@pytest.mark.deep
def test_the_part_that_is_replayed_has_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "quickstart", f"trace:{EXAMPLE}", "--subgraph", "ProfilerStep", "--step", "0", "--dry-run", "--json", "-k", "trace"]
    assert main(words) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert "step=0" in case and "subgraph=ProfilerStep" in case


def test_an_option_that_nothing_named_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "op/softmax", "--subgraph", "mm"]) == 2
    assert "--subgraph applies to nothing that is named to run" in capsys.readouterr().err
    assert main(["run", f"trace:{EXAMPLE}", "--subgraph", "mm", "-a", "subgraph=relu"]) == 2
    assert "-a subgraph" in capsys.readouterr().err


def test_a_replay_is_written_as_a_script_and_what_is_not_in_it_is_told(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "replay.py"
    assert main(["trace", "script", str(trace), "-o", str(path)]) == 3
    said = capsys.readouterr().err
    assert "1 of 2 operators" in said and "far::away" in said
    monkeypatch.setattr(sys, "argv", ["replay.py", "--warmup", "0", "--iterations", "2"])
    runpy.run_path(str(path), run_name="__main__")
    assert "ms per iteration, median of 2" in capsys.readouterr().out
    assert main(["trace", "script", str(trace), "-d", "abacus"]) == 2
    assert "abacus" in capsys.readouterr().err


@pytest.mark.deep
@pytest.mark.parametrize("base", [("--vs-path", "other"), ("--vs", "flags:MALLOC_ARENA_MAX=1")], ids=["another checkout", "flags"])
def test_a_replay_is_weighed_against_itself_elsewhere(tmp_path: Path, base: tuple[str, ...]) -> None:
    from tests.engine.drive import run_json

    (tmp_path / "other").mkdir()
    found = run_json(f"trace:{EXAMPLE}", *base, "--budget", "0.3s", "--settle", "0", cwd=tmp_path)
    assert found["pairs"][0]["ratio"] > 0 and {record["status"] for record in found["records"]} == {"ok"}
    assert found["pairs"][0]["parts"] and all(name.startswith("op:") for name in found["pairs"][0]["parts"])
