"""`as torchao` on a GPU with both profilers on: traces with the kernels that ran, and the allocator's own snapshots."""

from __future__ import annotations

import csv
import json
from base64 import b64encode
from pathlib import Path

import pytest

from tests.engine.drive import run_json, steelyard

pytest.importorskip("torchao", reason="the recipes are torchao's")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

CONFIG = """\
quantization_config_recipe_names: ["baseline", "int8wo"]
output_dir: "out"
model_params:
  - name: "small_bf16_linear"
    matrix_shapes:
      - {{name: "custom", shapes: [[256, 1024, 512]]}}
    high_precision_dtype: "torch.bfloat16"
    use_torch_compile: {compiled}
    device: "cuda"
    model_type: "linear"
    enable_profiler: true
    enable_memory_profiler: true
"""
PEAKS = ("allocated_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak")


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_profiles_lie_in_the_originals_folders(tmp_path: Path, compiled: str) -> None:
    (tmp_path / "x.yml").write_text(CONFIG.format(compiled=compiled))
    done = steelyard("as", "torchao", "--config", "x.yml", "--csv", "x.csv", "--budget", "100ms", "--strict-exit", cwd=tmp_path)
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["quantization"], row["status"], row["device"]) for row in rows] == [("baseline", "ok", "cuda"), ("int8wo", "ok", "cuda")]
    folder = tmp_path / "out" / "inference"
    for row in rows:
        stem = f"small_bf16_linear_256_1024_512_quant_{row['quantization']}_sparsity_None"
        assert row["notes"] == "", "both profiles were made"
        trace = folder / "profiler" / f"{stem}_profile.json"
        assert tmp_path / row["profiler_json_path"] == trace
        events = json.loads(trace.read_text())["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        assert kernels and all(event["dur"] > 0 for event in kernels), "what ran on the device is in the trace"
        assert any(event.get("cat") == "cpu_op" and event.get("args", {}).get("Input Dims") for event in events), "shapes are in it"
        assert any(event.get("cat") == "python_function" for event in events), "stacks are in it"

        snapshot = folder / "memory_profiler" / "pickle" / f"{stem}_memory_profile.pickle"
        assert tmp_path / row["memory_profile_path"] == snapshot
        content = snapshot.read_bytes()
        assert content[:1] == b"\x80" and content[-1:] == b".", "a pickle from its first byte to its last"
        assert all(name in content for name in (b"segments", b"device_traces", b"alloc")), "the history of the allocator"
        assert b".py" in content, "with the lines of Python that asked for memory"
        page = folder / "memory_profiler" / "html" / f"{stem}_memory_profile.html"
        assert tmp_path / row["memory_visualization_path"] == page
        assert b64encode(content + bytes(-len(content) % 3)).decode() in page.read_text()

        peaks = json.loads(row["memory_stats"].replace("'", '"'))
        assert set(peaks) == set(PEAKS)
        assert 1.0 < peaks[PEAKS[0]] <= peaks[PEAKS[1]] <= peaks[PEAKS[2]], "megabytes: the weight alone is one"
    assert float(rows[1]["speedup"]) > 0 and float(rows[1]["model_bytes"]) < float(rows[1]["baseline_model_bytes"])
    [*_, record] = json.loads((tmp_path / "benchmark_results.json").read_text())
    assert record["benchmark"]["extra_info"]["device"] == "cuda" and "NVIDIA" in record["benchmark"]["extra_info"]["arch"]
    assert "2 ok" in done.stderr


def test_another_device_than_the_files_own_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(CONFIG.format(compiled="false"))
    found = run_json("x.yml", "--budget", "50ms", "-d", "cpu", cwd=tmp_path)
    assert {(record["case"]["device"], record["status"]) for record in found["records"]} == {("cpu", "ok")}
