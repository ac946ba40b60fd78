"""What a user is told about the cases of an experiment file: which run, which rule dropped which, and what nobody expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steelyard.cli.main import main

FILE = """
[[matrix]]
workload = "fake/work"
axes = { fault = ["none", "raise"], seconds = [1e-3, 2e-3] }

[[exclude]]
axes = { seconds = 2e-3, fault = "raise" }
reason = "once is enough"

[[deny]]
axes = { seconds = 2e-3 }
reason = "too slow for us"

[[deny]]
workload = "fake/wrok"
reason = "misspelt"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.toml").write_text(FILE)
    return tmp_path


def test_a_dry_run_says_what_each_rule_did_and_which_did_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "exp.toml", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "dropped fake/work[bytes=0,fault=raise,flops=0,noise=0.0,seconds=0.002]" in told.err and "once is enough" in told.err
    assert "skipped fake/work[bytes=0,fault=none,flops=0,noise=0.0,seconds=0.002]" in told.err and "too slow for us" in told.err
    assert "fits no case: rule workload=fake/wrok" in told.err
    assert "2 cases · 1 skipped by rule" in told.err
    assert main(["run", "exp.toml", "--dry-run", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (len(plain["cases"]), [item["kind"] for item in plain["dropped"]]) == (2, ["deny", "exclude"])
    assert plain["idle"] == ["workload=fake/wrok"]


def test_a_run_warns_of_a_rule_that_fits_nothing_and_calls_no_failure_new_without_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "exp.toml"]) == 3
    told = capsys.readouterr()
    assert "warning: rule workload=fake/wrok fits no case" in told.err
    assert "1 ok · 1 failed · 1 skipped" in told.out and "new failure" not in told.out


def test_with_a_list_new_failures_and_new_passes_both_show(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "known.toml").write_text('[[expect]]\ncase = "*fault=none*"\nstatus = "wrong"\nreason = "issue 7"\n')
    assert main(["run", "exp.toml", "--expect", "known.toml"]) == 3
    out = capsys.readouterr().out
    assert "new failure: fake/work[bytes=0,fault=raise," in out
    assert "new pass: fake/work[bytes=0,fault=none," in out and "ok, expected wrong (issue 7)" in out
    (here / "known.toml").write_text('[[expect]]\naxes = { fault = "raise" }\nstatus = "failed"\n')
    assert main(["run", "exp.toml", "--expect", "known.toml"]) == 0
    assert "expected: fake/work[bytes=0,fault=raise," in capsys.readouterr().out
