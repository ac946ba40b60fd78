"""Replays on a GPU: the kernels of the step that was recorded, and the time of each operator on the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.traces import kernels

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's warnings are not ours


@pytest.mark.parametrize("name", list(kernels.CASES))
def test_a_replay_launches_the_kernels_of_the_step_and_they_take_as_long(name: str, tmp_path: Path) -> None:
    step, played, facts = kernels.compare(name, tmp_path)
    assert facts["skipped"] == [] and facts["unlike_recorded"] == []
    assert played.launched == step.launched
    assert played.seconds == pytest.approx(step.seconds, rel=kernels.ALLOWED)


def test_a_replay_on_a_device_tells_the_time_of_each_operator(tmp_path: Path) -> None:
    steelyard("capture", "--case", "model/mlp", "--mode", "train", "-d", "cuda", "--profile", "-o", "mlp.json", cwd=tmp_path)
    done = steelyard("run", "trace:mlp.json", "-d", "cuda", "-a", "coverage=1", "--budget", "quick", "--json", cwd=tmp_path)
    record = json.loads(done.stdout)["records"][0]
    rows = record["effective"]["replay_operators"]
    total = sum(row["time"] for row in rows)
    assert record["status"] == "ok" and rows[0]["recorded"] is not None
    assert 0 < total < 3 * record["metrics"]["time"]["value"]


def test_a_trace_of_the_host_is_replayed_on_the_device(tmp_path: Path) -> None:
    steelyard("capture", "--case", "model/mlp", "--mode", "eval", "-o", "mlp.json", cwd=tmp_path)
    done = steelyard("run", "trace:mlp.json", "-d", "cuda", "-a", "coverage=1", "--budget", "quick", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["records"][0]["status"] == "ok"
