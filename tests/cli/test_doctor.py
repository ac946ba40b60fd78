"""`steelyard doctor --noise`: measured, kept and shown; what its findings look like is tested beside the doctor's checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from steelyard.cli import doctor as cli
from steelyard.errors import StoreError, UsageError
from steelyard.machine import facts, noise
from steelyard.machine.noise import CaseNoise, DeviceNoise
from steelyard.model.experiment import Experiment, Matrix, Settings
from tests.engine.test_noise import SHAKY


@pytest.fixture
def shaky(tmp_path: Path) -> Path:
    file = tmp_path / "shaky.py"
    file.write_text(SHAKY)
    return file


def trial(file: Path, *levels: float) -> Experiment:
    """Cases of known noise on a virtual clock, and one that fails."""
    work = (Matrix(("shaky",), {"noise": levels}), Matrix(("fake/work",), {"fault": ("raise",)}))
    return Experiment("trial", matrix=work, settings=Settings(budget=0.2), files=(str(file),))


def key() -> str:
    return facts.key(facts.collect())


def test_measured_kept_and_shown(shaky: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.measure_noise("cpu", 1, None, as_json=False, chosen=trial(shaky, 0.001))
    said, told = capsys.readouterr()
    lines = said.splitlines()
    assert lines[0].endswith("1 thread") and key() in lines[0]
    assert lines[1].split("  ")[0] == "can see (90 % of the time)" and " ".join(lines[1].split()).endswith(" one call 1 s 5 s 30 s")
    assert lines[2].startswith("shaky") and lines[2].count(" %") == 3
    assert "9 of 10 comparisons" in lines[3] and "disturbs" not in said and max(map(len, lines[:-1])) <= 100
    assert lines[-1] == f"saved {noise.path(key(), 'cpu', 1)}"
    assert told.startswith("comparing 2 cases with themselves · about ") and "warning: fake/work" in told
    assert list(noise.saved(key())) == ["cpu-1"]


def test_a_restless_machine_is_sent_to_the_doctor(shaky: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.measure_noise("cpu", 1, None, as_json=False, chosen=trial(shaky, 0.001, 0.5))
    assert "something disturbs this machine; `steelyard doctor` says" in " ".join(capsys.readouterr().out.split())


def test_json(shaky: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.measure_noise("cpu", 2, None, as_json=True, chosen=trial(shaky, 0.01))
    said = json.loads(capsys.readouterr().out)
    (case,) = said["noise"]["cases"]
    assert set(said["noise"]["cases"][case]) == {"sd", "cost", "floor", "rebuilds"}
    assert 0 < said["sees"][case]["30"] <= said["sees"][case]["5"] <= said["sees"][case]["1"]
    assert (said["threads"], said["path"]) == (2, str(noise.path(key(), "cpu", 2)))


@pytest.mark.torch
def test_the_whole_command_in_small() -> None:
    done = CliRunner().invoke(cli.command, ["--noise", "--budget", "10ms", "--json"])
    assert done.exit_code == 0 and len(json.loads(done.stdout)["sees"]) == 4


def test_the_doctor_knows_whether_noise_was_measured() -> None:
    assert "steelyard doctor --noise" in CliRunner().invoke(cli.command, []).stdout.splitlines()[-2]
    noise.save(DeviceNoise({"a": CaseNoise(0.01, 1e-3, None, 50)}, "now"), key(), "cpu", 2)
    assert CliRunner().invoke(cli.command, []).stdout.splitlines()[-2] == "noise: cpu-2"
    assert json.loads(CliRunner().invoke(cli.command, ["--json"]).stdout)["noise"]["cpu-2"]["cases"]["a"]["rebuilds"] == 50


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--noise", "--peaks"], "two measurements"),
        (["--noise", "--strict"], "do not go with --noise"),
        (["--noise", "-d", "gpu"], "no device named 'gpu'"),
        (["--noise", "--budget", "0s"], "more than 0"),
    ],
)
def test_options_that_do_not_fit_are_told(words: list[str], what: str) -> None:
    result = CliRunner().invoke(cli.command, words)
    assert isinstance(result.exception, UsageError) and what in result.exception.what


def test_a_cache_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "file"))
    result = CliRunner().invoke(cli.command, ["--noise"])
    assert isinstance(result.exception, StoreError) and "weighing" not in result.output
