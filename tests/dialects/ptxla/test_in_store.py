"""What `as ptxla runner` measured is a run like any other: listed, shown, compared, judged and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.drive import steelyard

pytestmark = pytest.mark.torch
WORDS = ("--suite-name=dummy", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--repeat=8", "--threads=1", "--no-resume", "--verify")


def test_every_command_reads_its_runs_and_its_rows(tmp_path: Path) -> None:
    for _ in range(2):
        steelyard("as", "ptxla", "runner", *WORDS, "--test=eval", "--test=train", cwd=tmp_path)
    runs = json.loads(steelyard("list", "runs", "--json", cwd=tmp_path).stdout)
    assert len(runs) == 2
    shown = steelyard("show", "latest", cwd=tmp_path).stdout
    assert "dummy/linear" in shown and "optimizer" in shown
    one = steelyard("show", "latest/2", cwd=tmp_path).stdout
    assert "eager and its run in double precision" in one and "first call" in one
    assert "--fixed 0+8,inputs=fresh,cold,counters=counts" in " ".join(one.split())
    compared = json.loads(steelyard("compare", "latest~1", "latest", "--json", cwd=tmp_path).stdout)
    assert len(compared["deltas"]) == 2
    judged = steelyard("gate", "latest~1", "latest", cwd=tmp_path, check=None)
    assert judged.returncode in (0, 4, 6), judged.stderr
    steelyard("report", "latest", "-o", "page.html", cwd=tmp_path)
    assert "dummy/linear" in (tmp_path / "page.html").read_text()
    rows = tmp_path / "output" / "results.jsonl"
    assert "foreign/ptxla/dummy/dummy" in steelyard("show", str(rows), cwd=tmp_path).stdout
    told = {json.loads(line)["steelyard"]["run"] for line in rows.read_text().splitlines()}
    assert len(told) == 1 and str(*told).endswith(runs[0]["name"])
    again = steelyard("as", "ptxla", "runner", *(word for word in WORDS if word != "--no-resume"), "--test=eval", cwd=tmp_path)
    assert "there is a row for it already" in again.stderr
    assert len(json.loads(steelyard("list", "runs", "--json", cwd=tmp_path).stdout)) == 2
