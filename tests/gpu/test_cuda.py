"""PyTorch on a CUDA device, measured through the command line: right answers, sane figures, honest labels."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

READS_METER = pytest.mark.skipif(
    importlib.util.find_spec("pynvml") is None, reason="clocks, power and energy are read through nvidia-ml-py"
)
OWN_SOFTMAX = """
import json, statistics, time, torch
x = torch.randn(1024, 1024, device="cuda")
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
torch.softmax(x, -1)
torch.cuda.synchronize()
peak, launches = torch.cuda.max_memory_allocated(), []
for _ in range(40):
    start = time.perf_counter()
    for _ in range(100):
        torch.softmax(x, -1)
    launches.append((time.perf_counter() - start) / 100)
    torch.cuda.synchronize()
print(json.dumps({"peak": peak, "launch": statistics.median(launches)}))
"""
COUNTED = "1s"
"""The smallest budget beside which energy is counted."""
RANGES = {"sm_clock": (1e8, 5e9), "memory_clock": (1e8, 5e10), "power": (10, 2000), "temperature": (5, 120), "utilisation": (0, 1)}
LAYERS = {"batch": 8192, "features": 2048, "hidden": 4096, "depth": 3, "classes": 1000, "dtype": "bf16"}
OWN_STEP = f"""
import json, torch
from steelyard.backends.torch import Torch
from steelyard.registry import built_ins
task = built_ins().workloads["model/mlp"].bodies["torch"](**{LAYERS}, be=Torch("cuda", seed=0))
optimizer = torch.optim.SGD(task.parameters, lr=1e-4)
torch.cuda.synchronize()
torch.cuda.reset_peak_memory_stats()
held = torch.cuda.memory_allocated()
task.loss(task.fn(*task.args)).backward()
optimizer.step()
torch.cuda.synchronize()
weights = sum(item.nbytes for item in task.parameters)
print(json.dumps({{"held": held, "weights": weights, "peak": torch.cuda.max_memory_allocated()}}))
"""
HEAVY = """
from steelyard import Task, workload


@workload("my/product", axes={"k": [4096, 16384]})
def product(k, be):
    \"\"\"Bound by arithmetic; the second case does four times as much.\"\"\"
    import torch

    a, b = be.randn(4096, k, dtype="bf16"), be.randn(k, 4096, dtype="bf16")
    return Task(torch.matmul, (a, b), flops=2.0 * 4096 * 4096 * k)


@workload("my/stream", axes={"n": [2**27]})
def stream(n, be):
    \"\"\"Bound by memory, which a power cap does not slow down.\"\"\"
    x = be.randn(n)
    return Task(lambda x: x + 1, (x,), bytes=8.0 * n)
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


def told(folder: Path, *words: str, budget: str = "20ms") -> dict[str, Any]:
    (folder / ".steelyard").mkdir(exist_ok=True)
    env = {"STEELYARD_LOCKS": str(folder / "locks")}
    found: dict[str, Any] = json.loads(steelyard("run", *words, "-d", "cuda", "--budget", budget, "--json", cwd=folder, env=env).stdout)
    return found


def own(program: str) -> dict[str, float]:
    """What torch alone says of the same work, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, float] = json.loads(done.stdout)
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


@pytest.fixture(scope="module")
def own_softmax() -> dict[str, float]:
    return own(OWN_SOFTMAX)


def test_host_time_is_what_launching_costs(resident: dict[str, Any], own_softmax: dict[str, float]) -> None:
    host = resident["metrics"]["host_time"]
    assert own_softmax["launch"] / 3 < host["value"] < 3 * own_softmax["launch"]
    assert host["n"] == resident["effective"]["blocks"]


def test_the_host_is_ahead_of_a_stream_that_is_held_back(resident: dict[str, Any]) -> None:
    assert resident["effective"]["timer"] == "events, stream held back"
    assert resident["effective"]["host_late"] < 0.5, "without holding back nearly every block is late; other work on the host costs a few"


def test_peak_memory_is_what_torch_says_of_the_same_call(resident: dict[str, Any], own_softmax: dict[str, float]) -> None:
    peaks = {name: resident["metrics"][f"peak_{name}"]["value"] for name in ("allocated", "active", "reserved")}
    assert peaks["allocated"] == own_softmax["peak"] == 2 * 4 * 1024**2
    assert peaks["allocated"] <= peaks["active"] <= peaks["reserved"]


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """About a second of calls each that keep the device busy: a product, the same with four times the work, a stream."""
    folder = tmp_path_factory.mktemp("heavy")
    (folder / "heavy.py").write_text(HEAVY, encoding="utf-8")
    found = told(folder, "heavy.py", "--runs", "200", budget=COUNTED)
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    names = {4096: "product", 16384: "larger product", None: "stream"}
    return {names[record["case"]["params"].get("k")]: record for record in found["records"]}


def test_long_kernels_are_bound_by_the_device(heavy: dict[str, dict[str, Any]]) -> None:
    for record in heavy.values():
        assert record["effective"]["eager_bound_by"] == "device"
        assert record["effective"]["host_late"] < 0.5, "a few blocks are late where other processes hold the host up"
        assert 0 < record["metrics"]["host_time"]["value"] < record["metrics"]["time"]["value"] / 3


@READS_METER
def test_energy_is_power_over_time(heavy: dict[str, dict[str, Any]]) -> None:
    """Power and energy come from one counter over one stretch of wall time; the time comes from events, earlier."""
    metrics = heavy["stream"]["metrics"]
    assert metrics["energy"]["value"] == pytest.approx(metrics["power"]["value"] * metrics["time"]["value"], rel=0.15)


@READS_METER
def test_four_times_the_work_takes_about_four_times_the_energy(heavy: dict[str, dict[str, Any]]) -> None:
    small, large = (heavy[name]["metrics"] for name in ("product", "larger product"))
    assert 2.5 < large["energy"]["value"] / small["energy"]["value"] < 6
    assert 1e10 < large["efficiency"]["value"] < 1e14


@READS_METER
def test_clocks_power_and_heat_are_read_while_it_is_timed(heavy: dict[str, dict[str, Any]]) -> None:
    for name, record in heavy.items():
        seen = record["effective"]["telemetry"]
        assert seen["readings"] >= 3 and 0 <= seen["cost"] < 0.1, seen
        for quantity, (least, most) in RANGES.items():
            low, high = seen[quantity]
            assert least <= low <= high <= most, (name, quantity, seen)
        assert seen["power"][1] / 4 < record["metrics"]["power"]["value"] < 4 * seen["power"][1]
        series = {item["name"]: item["count"] for item in record["samples"] if item["name"].startswith("telemetry")}
        assert series == dict.fromkeys(("telemetry_time", "telemetry_sm_clock", "telemetry_power"), seen["readings"])
    assert heavy["stream"]["effective"]["telemetry"]["memory_used"][1] >= 2 * 4 * 2**27


@READS_METER
def test_telemetry_can_be_switched_off_and_energy_stays(tmp_path: Path) -> None:
    record = told(tmp_path, "op/softmax", "-a", "m=1024", "-a", "n=1024", "--no-telemetry", budget=COUNTED)["records"][0]
    assert record["status"] == "ok" and record["requested"]["telemetry"] is False
    assert "telemetry" not in record["effective"]
    assert not any(item["name"].startswith("telemetry") for item in record["samples"])
    assert record["metrics"]["energy"]["value"] > 0


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A perceptron large enough that the device sets the pace, by mode."""
    axes = [word for name, value in LAYERS.items() for word in ("-a", f"{name}={value}")]
    found = told(tmp_path_factory.mktemp("learning"), "model/mlp", *axes, "--mode", "eval,fwd,bwd,train", budget=COUNTED)
    return {record["case"]["mode"]: record for record in found["records"]}


def test_every_mode_is_right(learning: dict[str, dict[str, Any]]) -> None:
    for mode, record in learning.items():
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), (mode, record["reason"], record["verification"])


def test_a_step_is_about_the_sum_of_its_parts(learning: dict[str, dict[str, Any]]) -> None:
    metrics = learning["train"]["metrics"]
    parts = [metrics[f"{name}_time"]["value"] for name in ("forward", "backward", "optimizer")]
    assert all(part > 0 for part in parts)
    assert 0.7 < sum(parts) / metrics["time"]["value"] < 1.4
    assert 2 < metrics["time"]["value"] / learning["eval"]["metrics"]["time"]["value"] < 6
    assert learning["train"]["effective"]["eager_bound_by"] == "device"


def test_the_peak_of_a_step_is_torch_s_own_and_holds_nothing_of_the_check(learning: dict[str, dict[str, Any]]) -> None:
    alone = own(OWN_STEP)
    peaks = {mode: record["metrics"]["peak_allocated"]["value"] for mode, record in learning.items()}
    assert peaks["train"] == pytest.approx(alone["peak"], rel=0.02)
    assert alone["held"] + alone["weights"] < peaks["train"] <= learning["train"]["metrics"]["peak_reserved"]["value"]
    assert alone["held"] < peaks["eval"] < peaks["train"]


@READS_METER
def test_energy_of_a_step_includes_clearing_the_gradients_and_says_so(learning: dict[str, dict[str, Any]]) -> None:
    step, forward = learning["train"], learning["eval"]
    assert step["effective"]["energy"] == "includes the preparation before each call" and "energy" not in forward["effective"]
    assert step["metrics"]["energy"]["value"] > 1.5 * forward["metrics"]["energy"]["value"]


def test_norms_over_the_batch_are_right_in_training(tmp_path: Path) -> None:
    found = told(tmp_path, "model/resnet50", "-a", "batch=16", "-a", "dtype=bf16", "--mode", "eval,train")
    for record in found["records"]:
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), (record["reason"], record["verification"])


def test_a_captured_graph_gives_the_same_answer(tmp_path: Path) -> None:
    found = told(tmp_path, "layer/mlp", "-a", "size=small", "-V", "eager,cuda_graph", "--vs", "eager")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    graph = found["records"][1]
    assert graph["effective"]["cuda_graph"] is True and graph["verification"]["status"] == "passed"
    assert len(found["pairs"]) == 1


def test_precision_variants_of_an_fp32_product(tmp_path: Path) -> None:
    """TF32 on and off are both right and clearly differ in time, so the switch reaches the device; autocast is right too."""
    shape = ("-a", "m=2048", "-a", "n=2048", "-a", "k=2048")
    found = told(tmp_path, "op/matmul", *shape, "-V", "eager,tf32[on=true],autocast", "--vs", "eager")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    ratios = {pair["head"]["id"].split("/")[-1].split(":")[0]: pair["high"] for pair in found["pairs"]}
    assert ratios["tf32[on=true]"] < 1 and ratios["autocast"] < 1, ratios
    errors = [record["verification"]["max_rel"] for record in found["records"]]
    assert errors[0] < errors[1] < errors[2], errors


def test_compiled_code_is_right_and_really_compiled(tmp_path: Path) -> None:
    found = told(tmp_path, "op/softmax", "-a", "m=512", "-a", "n=1000", "-V", "eager,compile", "--vs", "eager")
    assert {status for status, _ in statuses(found).values()} == {"ok"}, statuses(found)
    assert found["records"][1]["effective"]["graphs"] == 1
    assert [pair["clock"] for pair in found["pairs"]] == ["graph replay"]


@READS_METER
def test_a_small_budget_has_no_time_for_energy_and_says_so(resident: dict[str, Any]) -> None:
    assert "energy" not in resident["metrics"] and "a budget of 1 s" in resident["effective"]["energy"]


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


def by_events(work: Callable[[], Any], calls: int = 50) -> float:
    """Seconds of a call between two plain events around many."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(2):
        start.record()
        for _ in range(calls if turn else 5):
            work()
        end.record()
        end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds * 1e-3 / calls


def test_measure_times_the_device_and_not_the_launch() -> None:
    import torch

    import steelyard

    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    found = steelyard.measure(torch.matmul, x, x)
    assert found.clock == "device events, stream held back" and "device events" in str(found)
    assert found.seconds == pytest.approx(by_events(lambda: torch.matmul(x, x)), rel=0.25)
    assert found.seconds > 3 * found.figures["host_time"].value


def test_work_on_a_stream_that_nobody_waits_for_is_timed_too() -> None:
    """Half of it on the current stream, so that there is something to see there."""
    import torch

    import steelyard

    x, side = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16), torch.cuda.Stream()

    def astray() -> None:
        torch.matmul(x, x)
        with torch.cuda.stream(side):
            torch.matmul(x, x)

    def honest() -> None:
        torch.matmul(x, x)
        torch.matmul(x, x)

    found = steelyard.measure(astray)
    assert found.seconds == pytest.approx(by_events(honest), rel=0.25)
    assert steelyard.compare(honest, astray, budget="quick", verify=False).ratio > 0.8
    assert steelyard.measure(honest).clock == "device events, stream held back"


ASLEEP = """
import json, torch, steelyard

def setup():
    return torch.randn(4096, 4096, device="cuda")

def half(x):
    return torch.softmax(x[:2048], -1)

def whole(x):
    return torch.softmax(x, -1)

found = steelyard.compare(whole, half, setup=setup, verify=False, budget="quick")
print(json.dumps({"ratio": found.ratio, "floor": found.pair.floor}))
"""


def test_compare_times_the_device_that_its_own_inputs_wake() -> None:
    """Nothing has used the device before: the launch alone would take both functions as long."""
    found = own(ASLEEP)
    assert 0.4 < found["ratio"] < 0.8, "half the rows, of which the cache may hold some"
    assert found["floor"] < 0.02


def test_measure_waits_for_a_long_call() -> None:
    import torch

    import steelyard

    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def work() -> None:
        for _ in range(20):
            torch.matmul(x, x)

    found = steelyard.measure(work)
    assert found.clock == "host, device synchronised"
    assert found.seconds == pytest.approx(by_events(work, calls=5), rel=0.25)


def test_measure_times_the_host_where_the_device_has_nothing_to_do() -> None:
    import torch

    import steelyard

    torch.zeros(1, device="cuda")
    found = steelyard.measure(sum, range(10_000))
    assert found.clock == "host, device synchronised" and found.seconds > 1e-5
