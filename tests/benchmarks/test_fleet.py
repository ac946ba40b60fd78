"""The simulated fleet holds to the protocol: every case once, although stations die and connections are cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.farm
def test_a_fleet_with_faults_measures_every_case_once() -> None:
    words = ["--stations", "40", "--real", "1", "--seconds", "0.2", "--each", "6", "--dies", "0.02", "--cut", "0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fleet", *words], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True,
        env={**os.environ, "STEELYARD_FARM_PATIENCE": "3s"},
    )  # fmt: skip
    told = dict(line.split() for line in done.stdout.splitlines())
    assert (told["each_once"], told["cases"]) == ("True", "240")
    assert int(told["lost_stations"]) > 0
