"""Replays on a GPU: the kernels of the step that was recorded, and the time of each operator on the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.traces import kernels

from steelyard.traces.steps import read_trace
from steelyard.workloads.traces import replay
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


COMPILED = """
import torch

table = torch.randn(4096, device="cuda")
weight = torch.randn(64, 64, device="cuda")
step = torch.compile(lambda x: torch.relu(x.reshape(64, 64) @ weight).mul(3).sum(dim=1))
for _ in range(2):
    step(table)
torch.cuda.synchronize()
"""


def told(trace: Path) -> str:
    """Every node of a trace and what lies beside it, for whoever reads that the test failed."""
    recorded = read_trace(trace)
    lines = [
        f"{node.id} {node.name!r} backend={node.kernel_backend!r} file={node.kernel_file!r} {[item.recorded for item in node.inputs]}"
        for node in recorded.nodes
    ]
    beside = sorted(path.name for path in recorded.resources.iterdir()) if recorded.resources else []
    return "\n".join([*lines, f"beside it: {beside}"])


def test_triton_kernels_run_where_the_user_allows_them(tmp_path: Path) -> None:
    (tmp_path / "compiled.py").write_text(COMPILED)
    trace = tmp_path / "step.json"
    steelyard("capture", "-o", trace.name, "compiled.py", cwd=tmp_path, within=300)
    before = replay.prepared(str(trace), {}, "cuda:0").facts()
    names = {row["operator"] for row in before["skipped"] if "--allow triton:" in row["why"]}
    assert names, told(trace)
    allowed = [word for name in names for word in ("--allow", f"triton:{name}")]
    run = ("run", f"trace:{trace.name}", "-d", "cuda", "-a", "coverage=1", *allowed, "--budget", "quick", "--json")
    done = steelyard(*run, cwd=tmp_path, check=None, within=300)
    assert done.returncode == 0, f"{done.stdout[:6000]}\n{done.stderr[-3000:]}\n{told(trace)}"
    record = json.loads(done.stdout)["records"][0]
    assert (record["status"], record["effective"]["replay"]["skipped"]) == ("ok", []), told(trace)
    assert any(row["operator"] in names and row["time"] > 0 for row in record["effective"]["replay_operators"])


def test_a_profiled_replay_tells_the_time_of_its_kernels_and_of_gaps(tmp_path: Path) -> None:
    steelyard("capture", "--case", "model/mlp", "--mode", "train", "-d", "cuda", "-o", "mlp.json", cwd=tmp_path)
    done = steelyard("run", "trace:mlp.json", "-d", "cuda", "--profile", "--budget", "quick", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)["records"][0]["metrics"]
    assert 0 < found["kernel_time"]["value"] < 2 * found["time"]["value"]
    assert 0 <= found["gap"]["value"] < 1
