"""`as param` on a real GPU: the three ways of timing, a flushed cache, replayed graphs, memory, and what it survives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from steelyard.param import read_records
from tests.engine.drive import run_json, steelyard

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[2] / "examples" / "param"
DEFAULT = "PyTorch:DefaultDataGenerator"
ROW = [1, 1 << 21]
"""One long row of 8 MiB, which stays in the L2 cache of a large GPU. Its softmax is the work of a single block, which waits for
memory most of the time: hundreds of microseconds, beside which what a launch costs is small."""


def tensor(*shape: int, **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": "float", "shape": list(shape)} | more


def config(**ops: list[dict[str, Any]]) -> dict[str, Any]:
    """Operators of torch, each with one input of these arguments."""
    return {f"torch.{name}": {"input_data_generator": DEFAULT, "config": [{"input": [{"args": args}]}]} for name, args in ops.items()}


def lines(folder: Path, what: dict[str, Any], *words: str, check: int = 0) -> dict[str, dict[str, Any]]:
    """The records of one run by operator."""
    (folder / "ops.json").write_text(json.dumps(what))
    (folder / "out.json").unlink(missing_ok=True)
    env = {"STEELYARD_LOCKS": str(folder / "locks")}
    (folder / ".steelyard").mkdir(exist_ok=True)
    steelyard("as", "param", "-c", "ops.json", "-d", "cuda", "-o", "out.json", "--strict-exit", *words, cwd=folder, env=env, check=check)
    return {line["op_name"]: line for line in read_records(folder / "out.json")}


def middle(record: dict[str, Any], which: str = "forward") -> float:
    return median(record["metric"][which]["measure.time"])


@pytest.mark.parametrize(("mode", "count"), [("discrete", 20), ("continuous", 1), ("continuous_events", 20)])
def test_every_mode_times_both_passes(tmp_path: Path, mode: str, count: int) -> None:
    found = lines(tmp_path, config(mm=[tensor(4096, 4096)] * 2), "-w", "5", "-i", "20", "-b", "--exec-mode", mode)["torch.mm"]
    for which in ("forward", "backward"):
        assert len(found["metric"][which]["measure.time"]) == count
        assert middle(found, which) > 0.05
    assert middle(found, "backward") > 1.3 * middle(found)
    memory = found["metric"]["forward"]["measure.gpu.memory"]
    assert len(memory) == (20 if mode == "discrete" else 1) and min(memory) >= 3 * 64


def test_events_see_the_device_and_discrete_the_launch_too(tmp_path: Path) -> None:
    what = config(add=[tensor(64)] * 2)
    by_mode = {
        mode: middle(lines(tmp_path, what, "-w", "20", "-i", "50", "--exec-mode", mode)["torch.add"]) for mode in ("discrete", "continuous")
    }
    assert by_mode["discrete"] > by_mode["continuous"]


def test_a_flushed_cache_makes_a_resident_operator_slower(tmp_path: Path) -> None:
    what, words = config(softmax=[tensor(*ROW), {"type": "int", "value": 1}]), ("-w", "10", "-i", "50", "--cuda-l2-cache")
    kept, flushed = (lines(tmp_path, what, *words, how)["torch.softmax"] for how in ("on", "off"))
    assert middle(flushed) > 1.1 * middle(kept)
    assert flushed["metric"]["forward"]["measure.gpu.memory"] == kept["metric"]["forward"]["measure.gpu.memory"]


def test_convolutions_that_round_to_tf32_are_right_by_what_that_allows(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "resnet50_convolutions.json", tmp_path / "ops.json")
    (tmp_path / ".steelyard").mkdir()
    found = run_json("ops.json", "-d", "cuda", "--budget", "5ms", "-V", "eager,compile", cwd=tmp_path)
    assert any("TF32" in record["verification"]["against"] for record in found["records"])


def test_graphs_are_captured_without_warm_up_and_replayed(tmp_path: Path) -> None:
    found = lines(tmp_path, config(mm=[tensor(512, 512)] * 2), "-w", "0", "-i", "20", "-b", "--cuda-graph")["torch.mm"]
    assert 0.002 < middle(found) < 5
    assert 0.002 < middle(found, "backward") < 5


def test_a_config_that_does_not_fit_costs_itself_alone(tmp_path: Path) -> None:
    found = lines(tmp_path, config(relu=[tensor(1 << 20, 1 << 17)], add=[tensor(64)] * 2), "-i", "3", check=3)
    assert found["torch.relu"]["steelyard"]["status"] == "oom"
    assert found["torch.add"]["steelyard"]["status"] == "ok"


OUT_OF_BOUNDS = {
    "index_select": [tensor(4, 4), {"type": "int", "value": 0}, tensor(4, dtype="int64", values=[0, 1, 2, 9])],
    "add": [tensor(64)] * 2,
}
"""The device never forgets such an error: the next config needs another process."""


def test_an_index_out_of_bounds_costs_itself_alone(tmp_path: Path) -> None:
    found = lines(tmp_path, config(**OUT_OF_BOUNDS), "-i", "3", "--timeout", "60s", check=3)
    assert found["torch.index_select"]["steelyard"]["status"] in ("failed", "crashed")
    assert found["torch.add"]["steelyard"]["status"] == "ok"


def test_an_index_out_of_bounds_costs_one_case_alone(tmp_path: Path) -> None:
    (tmp_path / ".steelyard").mkdir()
    (tmp_path / "ops.json").write_text(json.dumps(config(**OUT_OF_BOUNDS)))
    found = run_json("ops.json", "-d", "cuda", "--budget", "50ms", "--timeout", "60s", cwd=tmp_path, check=3)
    assert [record["status"] for record in found["records"]] in (["failed", "ok"], ["crashed", "ok"])


@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute is not installed")
def test_counters_come_back_into_the_records(tmp_path: Path) -> None:
    half = tensor(4096, 4096, dtype="float16")
    found = lines(tmp_path, config(mm=[half] * 2, add=[tensor(1024, 1024)] * 2), "-i", "5", "--ncu")
    for record in found.values():
        kernels = record["steelyard"]["ncu"]["kernels"]
        assert kernels
        assert all(1e-6 < kernel["duration"] < 1e-2 for kernel in kernels)
    product, addition = (found[name]["steelyard"]["ncu"]["kernels"][0] for name in ("torch.mm", "torch.add"))
    assert addition["dram_bytes"] > 0 and addition["tensor"] == 0
    assert 0.3 < product["tensor"] <= 1
