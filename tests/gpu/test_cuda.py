"""PyTorch on a CUDA device, measured through the command line: right answers, sane figures, honest labels."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

OWN_PEAK = """
import torch
x = torch.randn(1024, 1024, device="cuda")
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
torch.softmax(x, -1)
torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated())
"""
WAITS = """
from steelyard import Task, workload


@workload("my/waits", axes={"n": [4096]})
def waits(n, be):
    \"\"\"Asks the device for a number in the middle of its work.\"\"\"
    x = be.randn(n)
    return Task(lambda x: x * float(x.sum()), (x,))


@workload("my/flows", axes={"n": [4096]})
def flows(n, be):
    \"\"\"Hands over work and goes on; the work is long enough to hide that.\"\"\"
    x = be.randn(n, n)
    return Task(lambda x: x @ x, (x,))
"""


def told(folder: Path, *words: str) -> dict[str, Any]:
    (folder / ".steelyard").mkdir(exist_ok=True)
    env = {"STEELYARD_LOCKS": str(folder / "locks")}
    found: dict[str, Any] = json.loads(steelyard("run", *words, "-d", "cuda", "--budget", "20ms", "--json", cwd=folder, env=env).stdout)
    return found


def statuses(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {record["id"]: (record["status"], record["reason"]) for record in found["records"]}


def test_everything_in_the_smoke_set_is_right(tmp_path: Path) -> None:
    found = told(tmp_path, "tag:smoke", "-a", "size=small", "--isolate", "none")
    assert len(found["records"]) >= 15
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    assert {record["verification"]["status"] for record in found["records"]} == {"passed"}


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A softmax whose 8 MiB stay in the cache from call to call."""
    found = told(tmp_path_factory.mktemp("resident"), "op/softmax", "-a", "m=1024", "-a", "n=1024", "-a", "dtype=fp32")
    record: dict[str, Any] = found["records"][0]
    assert record["status"] == "ok", record["reason"]
    return record


def test_a_cold_cache_costs_time(resident: dict[str, Any]) -> None:
    time, cold = resident["metrics"]["time"], resident["metrics"]["time_cold"]
    assert 0 < time["low"] <= time["value"] <= time["high"]
    assert cold["low"] > time["high"]
    assert cold["n"] >= 8


def test_host_time_is_a_figure_of_its_own(resident: dict[str, Any]) -> None:
    host = resident["metrics"]["host_time"]
    assert 1e-7 < host["value"] < 1e-2
    assert resident["effective"]["timer"] == "events, stream held back"
    assert 0 <= resident["effective"]["host_late"] <= 1


def test_peak_memory_is_what_torch_says_of_the_same_call(resident: dict[str, Any]) -> None:
    own = subprocess.run([sys.executable, "-c", OWN_PEAK], capture_output=True, text=True, check=True, timeout=120)
    peaks = {name: resident["metrics"][f"peak_{name}"]["value"] for name in ("allocated", "active", "reserved")}
    assert peaks["allocated"] == float(own.stdout) == 2 * 4 * 1024**2
    assert peaks["allocated"] <= peaks["active"] <= peaks["reserved"]


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="energy is read through nvidia-ml-py")
def test_energy_is_power_over_time(resident: dict[str, Any]) -> None:
    metrics = resident["metrics"]
    assert 10 < metrics["power"]["value"] < 2000
    assert metrics["energy"]["value"] > metrics["power"]["value"] * metrics["time"]["value"] / 2
    assert metrics["efficiency"]["value"] == pytest.approx(5 * 1024**2 / metrics["energy"]["value"])
    assert resident["effective"]["telemetry"]["readings"] >= 1


def test_a_captured_graph_gives_the_same_answer(tmp_path: Path) -> None:
    found = told(tmp_path, "layer/mlp", "-a", "size=small", "-V", "eager,cuda_graph", "--vs", "eager")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    graph = found["records"][1]
    assert graph["effective"]["cuda_graph"] is True and graph["verification"]["status"] == "passed"
    assert len(found["pairs"]) == 1


def test_precision_variants_of_an_fp32_product(tmp_path: Path) -> None:
    """TF32 on and off are both right and clearly differ in time, so the switch reaches the device; autocast is right too."""
    shape = ("-a", "m=2048", "-a", "n=2048", "-a", "k=2048")
    found = told(tmp_path, "op/matmul", *shape, "-V", "tf32[on=false],tf32[on=true],autocast", "--vs", "tf32[on=false]")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    ratios = {pair["head"]["id"].split("/")[-1].split(":")[0]: pair["high"] for pair in found["pairs"]}
    assert ratios["tf32[on=true]"] < 1 and ratios["autocast"] < 1, ratios
    errors = [record["verification"]["max_rel"] for record in found["records"]]
    assert errors[0] < errors[1] < errors[2], errors


def test_compiled_code_is_right_and_really_compiled(tmp_path: Path) -> None:
    found = told(tmp_path, "op/softmax", "-a", "m=512", "-a", "n=1000", "-V", "eager,compile", "--vs", "eager")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    assert found["records"][1]["effective"]["graphs"] == 1
    assert len(found["pairs"]) == 1


def test_who_waits_for_whom_is_said(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS, encoding="utf-8")
    found = told(tmp_path, "waits.py")
    bound = {record["case"]["workload"]: record["effective"].get("eager_bound_by") for record in found["records"]}
    assert bound == {"my/waits": "host", "my/flows": "device"}, statuses(found)


def test_do_bench_times_the_device_with_a_cold_cache() -> None:
    import torch

    import steelyard

    x = torch.randn(1024, 1024, device="cuda")
    cold = steelyard.do_bench(lambda: torch.softmax(x, -1), rep=20, return_mode="median")
    hot = steelyard.do_bench(lambda: [torch.softmax(x, -1) for _ in range(2)], rep=20, return_mode="median")
    assert isinstance(cold, float) and isinstance(hot, float)
    assert cold < hot < 2 * cold


def test_do_bench_times_the_host_where_the_device_has_nothing_to_do() -> None:
    import torch

    import steelyard

    assert torch.cuda.is_available()
    times = steelyard.do_bench(lambda: sum(range(100_000)), warmup=1, rep=20, return_mode="all")
    assert isinstance(times, list) and min(times) > 0.1


def test_do_bench_clears_gradients_of_tensors_on_the_device() -> None:
    import torch

    import steelyard

    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    seen = []

    def step() -> None:
        seen.append(weight.grad is None)
        (weight @ weight).sum().backward()

    assert isinstance(steelyard.do_bench(step, warmup=1, rep=5, grad_to_none=[weight]), float)
    assert all(seen)
