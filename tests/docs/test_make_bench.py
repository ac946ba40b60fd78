"""`make bench` ends with a report, whatever the cases did, and with the run's own exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_make import make, stub


@pytest.mark.parametrize(
    ("run", "report", "reported"), [(0, 0, True), (3, 0, True), (5, 5, True), (0, 2, True), (2, 0, False), (130, 0, False)]
)
def test_the_run_decides_and_the_report_is_written(run: int, report: int, reported: bool, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    stub(venv / "bin" / "python", "true")
    stub(venv / "bin" / "steelyard", f'echo "steelyard $*"; case "$1" in run) exit {run};; *) exit {report};; esac')
    done = make("bench", "CXX=true", f"VENV={venv}")
    assert "steelyard run quickstart" in done.stdout
    assert ("steelyard report -o report.html" in done.stdout) is reported
    assert done.returncode == (2 if run or report else 0)
    assert f"Error {run or report}" in done.stderr or not (run or report)
